"""Runs every test of one or more build folders, on all cores at once, and adds them up.

    python3 tests/run_tests.py BUILD_DIR [BUILD_DIR ...] [--only NAME,NAME] [--filter GTEST_FILTER] [--list] [--jobs N]

tests/FOLDER became BUILD_DIR/tests/FOLDER_tests (GoogleTest); tests/scripts/*.sh and tests/launchers/*.sh (run once,
with the first build folder as argument) count as one test each: exit status 0 passes, 77 skips. Programs are cut into
pieces (tests/test_pieces.py), and a free core takes the longest piece that is left, as the last run has measured it
(durations.json beside the programs). Each piece runs in an empty folder of its own, which is removed afterwards.

A test that crashes or hangs is one failure; the tests behind it run in a piece of their own. Up to three failures of a
program are tried again when everything else has ended, since many tests measure time: if they pass then, they count as
passed, but they are flaky; a line names them, and more than three in one run count as failures. What was skipped is
named, with the reason, and so is what failed: whoever sees the last lines only knows where to look. The last line is "N
passed, N failed" (and ", N skipped"); the exit status is 0 only when nothing failed and something ran. 130: a signal.
"""
import sys

sys.dont_write_bytecode = True  # a test run leaves no files in the checkout
import argparse, glob, json, os, re, shutil, signal, subprocess, tempfile, time
import test_pieces
from test_pieces import HERE, Ended, Listing, Piece, Program

MAX_FLAKY = 3     # tests that may fail once and pass alone: of one program, to be tried again, and of the whole run
MAX_HUNG = 3      # pieces of a program that may hang; then the rest of it is given up, and CI ends within its budget
SLOWEST = 20      # tests that are named at the end
TURN = 0.02       # seconds between two looks at what runs
TERMINAL, LOG = 0.5, 9  # seconds between two lines of progress on a terminal and in a log

# Property tests draw the same cases in every run, so that a failure is due to the change under test. RC_PARAMS=seed=N
# draws different ones.
os.environ.setdefault("RC_PARAMS", "seed=20261121")

# Waiting threads go to sleep earlier than in the program `tessera`. There are more pieces and ranks than cores, so a
# spinning thread takes a core from the thread that it waits for. With the program's 2000 turns, tests of threads use
# twice as much CPU time.
os.environ.setdefault("GOMP_SPINCOUNT", "100")


class Running:
    """The process of a piece, and the folder that it works in."""

    def __init__(self, piece):
        self.piece, self.begin, self.timed_out = piece, time.monotonic(), False
        self.read, self.current, self.tests_ended = 0, "", 0  # look()
        self.base = tempfile.mkdtemp(prefix="tessera-test-")
        self.report, self.output = os.path.join(self.base, "report.json"), os.path.join(self.base, "output")
        folder = os.path.join(self.base, "work")
        os.makedirs(folder, exist_ok=True)
        with open(self.output, "ab") as output:  # a file: a process that outlives the piece would keep a pipe open
            # In its own session, so that all of its processes can be killed.
            self.process = subprocess.Popen(piece.command(self.report), cwd=folder,
                                            env={**os.environ, **piece.environment(), "PWD": folder},
                                            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                            start_new_session=True)

    def seconds(self):
        return time.monotonic() - self.begin

    def over(self):
        """Whether it has ended, or must be."""
        # Does not reap the process, so that its pid, which end() needs, is not reused.
        if os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return True
        self.timed_out = self.seconds() > self.piece.limit()
        return self.timed_out

    def look(self):
        """Reads on in its output: how many tests have ended, and which one runs."""
        with open(self.output, "rb") as output:
            output.seek(self.read)
            new = output.read()
        new = new[: new.rfind(b"\n") + 1]
        self.read += len(new)
        for word, name in re.findall(rb"\[ +(RUN|OK|FAILED|SKIPPED) +\] (\S+)", new):
            if word == b"RUN":
                self.current = name.decode(errors="replace")
            elif self.current:
                self.current = ""
                self.tests_ended += 1

    def end(self):
        kill_session(self.process.pid)
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)  # Popen must not wait for the process
        ended = Ended(self.process.returncode, self.timed_out, text_of(self.output), text_of(self.report),
                      usage.ru_utime + usage.ru_stime, self.seconds())
        shutil.rmtree(self.base, ignore_errors=True)
        return ended


def text_of(path):
    if not os.path.exists(path):
        return ""
    with open(path, errors="replace") as file:
        return file.read()


def kill_session(leader):
    """Ends what a piece has started: its process group, and those that its processes opened in the same session."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            if pid != leader and os.getsid(pid) == leader:
                os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass


class Pool:
    """Runs pieces on `jobs` cores. The widest begin, so that none has to wait for cores while others idle; then the
    longest, so that the last ones to end are short."""
    interrupted = False  # by a signal

    def __init__(self, jobs, progress):
        self.jobs, self.progress, self.waiting, self.running = jobs, progress, [], []

    def add(self, pieces):
        self.waiting = sorted(self.waiting + pieces, key=lambda piece: (-piece.cores, -piece.estimate))

    def take(self, program):
        """The pieces of a program that have not begun; they never will."""
        taken = [piece for piece in self.waiting if piece.program is program]
        self.waiting = [piece for piece in self.waiting if piece.program is not program]
        return taken

    def start_what_fits(self):
        free = self.jobs - sum(running.piece.cores for running in self.running)
        while fitting := [piece for piece in self.waiting if piece.cores <= free]:
            self.waiting.remove(fitting[0])
            self.running.append(Running(fitting[0]))
            free -= fitting[0].cores

    def run(self, ended):
        """Calls `ended` with each piece and how it has ended; that may add more pieces."""
        try:
            while self.waiting or self.running:
                if Pool.interrupted:
                    raise KeyboardInterrupt
                self.start_what_fits()
                self.progress.show(self)
                time.sleep(TURN)
                for running in [running for running in self.running if running.over()]:
                    self.running.remove(running)
                    ended(running.piece, running.end())
        finally:
            for running in self.running:
                running.end()
            self.progress.clear()


def interrupt(*_):
    Pool.interrupted = True  # raises nothing: a process that was just started would be lost


class Progress:
    """One line that tells how far it is: rewritten on a terminal, every few seconds in a log."""
    hidden = False  # --list prints nothing else

    def __init__(self, what, total):
        self.what, self.total, self.done = what, total, 0
        self.begin = self.shown = time.monotonic()
        self.estimated = self.took = 30  # seconds of the pieces that ended; assumed before the first one ends
        self.terminal = sys.stdout.isatty()

    def count(self, piece, ended):
        self.done += len(piece.tests)
        self.estimated += piece.estimate * piece.cores
        self.took += ended.wall * piece.cores

    def left(self, pool):
        """Seconds until everything has ended, if pieces go on to take longer than estimated as they did so far."""
        pace = self.took / self.estimated
        rests = [max(pace * running.piece.estimate - running.seconds(), 0) for running in pool.running]
        ahead = sum(rest * running.piece.cores for rest, running in zip(rests, pool.running))
        ahead += pace * sum(piece.estimate * piece.cores for piece in pool.waiting)
        return max([ahead / pool.jobs, *rests])

    def line(self, pool):
        for running in pool.running:
            running.look()
        now = ", ".join(f"{running.piece.program.name} {running.current}".strip() for running in pool.running)
        done = self.done + sum(running.tests_ended for running in pool.running)
        return (f"[{done:{len(str(self.total))}d}/{self.total} {self.what}, {time.monotonic() - self.begin:.0f} s, "
                f"about {self.left(pool):.0f} s left] running: {now}")

    def show(self, pool):
        if Progress.hidden or not pool.running or time.monotonic() - self.shown < (TERMINAL if self.terminal else LOG):
            return
        self.shown = time.monotonic()
        line = self.line(pool)
        if self.terminal:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\033[K{line[:width]}", end="", flush=True)
        else:
            print(line, flush=True)

    def say(self, text):
        self.clear()
        print(text, flush=True)

    def clear(self):
        if self.terminal:
            print("\r\033[K", end="", flush=True)


class Account:
    """What the pieces of a program add up to."""

    def __init__(self, program):
        self.program, self.open, self.hung = program, 0, 0  # pieces
        self.passed = self.failed = self.skipped = 0
        self.cpu = self.wall = 0.0
        self.seconds, self.failures = {}, {}  # by test; output of the tests that may be rerun
        self.reasons, self.broken = [], []

    def add(self, result, ended):
        self.cpu += ended.cpu
        self.wall += ended.wall
        self.seconds.update(result.seconds)
        self.passed += len(result.seconds) - len(result.failed) - len(result.skipped)
        self.failed += len(result.failed) + len(result.lost) + len(result.broken)
        self.skipped += len(result.skipped)
        self.failures.update(dict.fromkeys(result.failed, result.text))
        self.reasons += result.reasons
        self.broken += result.broken + result.causes

    def give_up(self, tests):
        self.failed += len(tests)
        self.broken += [f"{len(tests)} tests were not run: {self.hung} pieces before them hung"] if tests else []

    def pass_after_all(self):
        """The failures have passed when they were run again. Returns their names."""
        names = list(self.failures)
        self.passed += len(names)
        self.failed -= len(names)
        self.failures = {}
        return names

    def line(self):
        return (f"{self.program.title:36s} {self.passed:5d} passed {self.failed:3d} failed {self.skipped:3d} skipped "
                f"{self.cpu:7.1f} CPU-s {self.wall:7.1f} s")


def find_programs(builds, only, scripts):
    found = []
    for build in builds:
        for path in sorted(glob.glob(os.path.join(build, "tests", "*_tests"))):
            found.append(Program(os.path.abspath(path), path, os.path.abspath(build)))
    patterns = [os.path.join(HERE, folder, "*.sh") for folder in ("scripts", "launchers") if scripts]
    for path in sorted(path for pattern in patterns for path in glob.glob(pattern)):
        found.append(Program(path, os.path.relpath(path), os.path.abspath(builds[0]), [""]))
    return [program for program in found if not only or program.name in only]


def ask_for_names(programs, wanted, jobs):
    """Fills in the tests of the programs. Returns (program, how it ended) of those that did not list theirs."""
    asked = [program for program in programs if not program.is_script]
    progress = Progress("programs asked for their tests", len(asked))
    pool, silent = Pool(jobs, progress), []
    filtered = wanted or "GTEST_FILTER" in os.environ  # otherwise a program without tests is a mistake

    def ended(listing, end):
        progress.done += 1
        listing.program.tests = [] if end.code else test_pieces.names_of(end.text)
        if end.code or not (listing.program.tests or filtered):
            silent.append((listing.program, end))

    pool.add([Listing(program, wanted) for program in asked])
    pool.run(ended)
    return silent


def durations_file(build):
    return os.path.join(build, "tests", "durations.json")


def remembered_durations(build):
    """{program or script: {test: seconds}} of the last runs; nothing if there were none."""
    try:
        with open(durations_file(build)) as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def remember_durations(accounts):
    for build in {account.program.build for account in accounts}:
        known = remembered_durations(build)
        for account in accounts:
            if account.program.build == build and account.seconds:
                known.setdefault(account.program.file, {}).update(account.seconds)
        try:
            with tempfile.NamedTemporaryFile("w", dir=os.path.join(build, "tests"), delete=False) as file:
                json.dump(known, file, indent=1, sort_keys=True)
            os.replace(file.name, durations_file(build))  # atomic: two runs may end at the same time
        except OSError as error:
            print(f"the durations are not remembered: {error}")


def run_pieces(accounts, jobs):
    """Runs all tests once."""
    durations = {account.program.build: remembered_durations(account.program.build) for account in accounts}
    progress = Progress("tests", sum(len(account.program.tests) for account in accounts))
    pool, owners = Pool(jobs, progress), {account.program: account for account in accounts}

    def ended(piece, end):
        account, result = owners[piece.program], test_pieces.result_of(piece, end)
        account.add(result, end)
        account.open -= 1
        account.hung += end.timed_out
        progress.count(piece, end)
        rest = []
        if result.unrun:
            share = len(result.unrun) / len(piece.tests)
            rest = [Piece(piece.program, result.unrun, piece.estimate * share, piece.cores)]
            progress.done -= len(result.unrun)
        if account.hung >= MAX_HUNG:
            rest += pool.take(piece.program)
            tests = [name for piece in rest for name in piece.tests]
            account.give_up(tests)
            progress.done += len(tests)
            account.open = sum(running.piece.program is account.program for running in pool.running)
        else:
            pool.add(rest)
            account.open += len(rest)
        if result.failed or result.lost or result.broken:
            progress.say(f"{piece.program.title}: {end.words()} after {end.wall:.1f} s, with {len(piece.tests)} tests\n"
                         + prefixed(piece.program, result.text, test_pieces.SHOWN))
        if not account.open:
            progress.say(account.line())

    for account in accounts:
        program = account.program
        pieces = test_pieces.cut(program, durations[program.build].get(program.file, {}), jobs)
        account.open = len(pieces)
        pool.add(pieces)
    pool.run(ended)


def prefixed(program, text, most):
    """The end of a text, each line with the program that said it."""
    return "\n".join(f"{program.name}| {line}" for line in text[-most:].strip("\n").splitlines())


def run_again(accounts):
    """Runs the few failures of each program again, alone. Returns those that passed: the flaky ones."""
    progress, flaky = Progress("programs run again", len(accounts)), []
    for account in accounts:
        names = list(account.failures)
        pool = Pool(1, progress)
        pool.add([Piece(account.program, names, sum(account.seconds[name] for name in names))])

        def ended(piece, end):
            result = test_pieces.result_of(piece, end)
            progress.done += 1
            account.cpu += end.cpu
            if result.failed or result.lost or result.broken:
                progress.say(f"{account.program.title}: failed again, alone: {', '.join(names)}")
                return
            first = "\n".join(dict.fromkeys(account.failures.values()))
            progress.say(f"{account.program.title}: passed when run again, alone: {', '.join(names)}. It was:\n"
                         + prefixed(account.program, first, 4000))
            flaky.extend(account.pass_after_all())

        pool.run(ended)
    return flaky


def report_times(accounts, wall, cores):
    times = [(seconds, account.program, name) for account in accounts for name, seconds in account.seconds.items()]
    print("the slowest tests:")
    for seconds, program, name in sorted((row for row in times if row[0] >= 0.05), key=lambda row: -row[0])[:SLOWEST]:
        print(f"{seconds:8.1f} s  {program.title} {name}".rstrip())
    print("CPU-seconds, and the cores kept busy while it ran:")
    for account in sorted(accounts, key=lambda account: -account.cpu):
        if account.cpu >= 0.5:
            print(f"{account.cpu:8.1f} s  {account.cpu / max(account.wall, 0.001):4.1f}  {account.program.title}")
    cpu = sum(account.cpu for account in accounts)
    print(f"{cpu:.0f} CPU-seconds in {wall:.0f} s on {cores} cores: {100 * cpu / (wall * cores):.0f} % of them used")


def report_verdicts(accounts, flaky):
    """Ends with the last line. Returns the exit status."""
    passed, failed, skipped = (sum(getattr(account, what) for account in accounts)
                               for what in ("passed", "failed", "skipped"))
    for account in accounts:
        for line in account.reasons:
            print(f"skipped: {line}")
    if len(flaky) > MAX_FLAKY:
        print(f"{len(flaky)} flaky tests count as failures: more than {MAX_FLAKY} in one run")
        passed -= len(flaky)
        failed += len(flaky)
    if flaky:
        print("flaky: " + ", ".join(flaky))
    for account in accounts:
        for line in [*account.failures, *account.broken]:
            print(f"failed: {account.program.title}: {line}")
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 0 if passed and not failed else 1


def print_names(programs):
    for program in programs:
        for name in program.tests:
            print(f"{program.file} {name}".rstrip())


def arguments():
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description="Runs every test of one or more build folders, and adds them up.")
    parser.add_argument("build", nargs="+", help="a build folder; scripts get the first one")
    parser.add_argument("--only", default="", help="names without _tests or .sh, separated by commas")
    parser.add_argument("--filter", default="", help="run the tests that match, in GoogleTest's syntax; and no script")
    parser.add_argument("--list", action="store_true", help='print "program Suite.Test" for each test, and run none')
    # A piece waits for its ranks, time-outs or disks a third of the time, so one piece more than cores keeps them busy.
    parser.add_argument("--jobs", type=int, default=cores + 1,
                        help=f"pieces at a time (default: one more than cores, {cores + 1} here)")
    args = parser.parse_args()
    if args.jobs < 1:
        parser.error("--jobs: expected at least 1")
    return args


def main():
    args = arguments()
    begin = time.monotonic()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # keeps nohup's setting
            signal.signal(number, interrupt)
    Progress.hidden = args.list
    only = set(filter(None, args.only.split(",")))
    programs = find_programs(args.build, only, scripts=not args.filter)
    silent = ask_for_names(programs, args.filter, args.jobs)
    if args.list:
        print_names(programs)
        for program, end in silent:
            print(f"{program.title} does not list its tests: {end.words()}\n{end.text}", file=sys.stderr)
        return 1 if silent else 0
    accounts = [Account(program) for program in programs]
    for account in accounts:
        for end in [end for program, end in silent if program is account.program]:
            account.failed += 1
            account.broken.append(f"it does not list its tests: it ended with {end.words()}")
            print(prefixed(account.program, end.text, test_pieces.SHOWN), account.line(), sep="\n", flush=True)
    run_pieces(accounts, args.jobs)
    flaky = run_again([account for account in accounts if 0 < len(account.failures) <= MAX_FLAKY])
    remember_durations(accounts)
    if accounts:
        report_times(accounts, time.monotonic() - begin, len(os.sched_getaffinity(0)))
    return report_verdicts(accounts, flaky)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted: everything that ran was ended", flush=True)
        sys.exit(130)
