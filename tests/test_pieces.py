"""What tests/run_tests.py runs: GoogleTest programs and scripts, cut into pieces, and what a piece says of its tests.

A piece is one process: some tests of one program (by --gtest_filter), or one script. A suite stays in one piece unless
it is long, because its tests may share what SetUpTestSuite made. One process per test would start LibTorch thousands of
times.
"""
import json, os, re
from dataclasses import dataclass, field

PIECE = 30         # estimated seconds of a piece: short enough that none is the tail, long beside the start of LibTorch
LONG_SUITE = 30    # a suite of more estimated seconds is cut
MOST_TESTS = 800   # of a piece: their names are one argument, and Linux takes 128 KiB
START = 0.5        # seconds until a program runs its first test
PER_TEST = 0.3     # of a test that never ran, of a program of which none did ...
SECONDS = {"distributed_tests": 2.0, "tool_tests": 2.5}  # ... unless it is listed here
PER_SCRIPT = 15
LIMIT, SCRIPT_LIMIT = 900, 900  # seconds until a piece counts as hung; more for those that are estimated to be long
STRETCH = 20                    # times their estimate: the machine may be slower, or busier, than last time

SHOWN = 20000  # characters of a failing piece's output to show

ALONE = 10**6  # cores: all of them
# Number of cores that a piece occupies, if not one. Keys are a program, one of its suites ("tool_tests Watch") or a
# script, as --list names them. List pieces that measure time or keep several ranks busy.
CORES = {
    "distributed_tests ShmFailures": ALONE,  # compares all of /dev/shm before and after
}

LIST = "--gtest_list_" + "tests"  # split: tests/structure would take the word for a program's name
# Programs whose tests fork many ranks. The loader resolves their functions at the start (a tenth of a second);
# otherwise every rank would resolve them again, which takes a tenth of its CPU time.
FORKING = {"distributed_tests", "sharding_tests"}

HERE = os.path.dirname(os.path.abspath(__file__))


@dataclass(eq=False)
class Program:
    path: str    # absolute
    title: str   # as the caller named it: two build folders may have the same program
    build: str   # the build folder, absolute; it is what a script gets as argument
    tests: list = field(default_factory=list)

    def __post_init__(self):
        self.file = os.path.basename(self.path)
        self.is_script = self.file.endswith(".sh")
        self.name = re.sub(r"_tests$|\.sh$", "", self.file)  # for --only


@dataclass(eq=False)
class Piece:
    program: Program
    tests: list
    estimate: float
    cores: int = 1

    def command(self, report):
        program = self.program
        if program.is_script:
            return ["bash", program.path, program.build]
        return [program.path, f"--gtest_output=json:{report}", "--gtest_color=no",
                "--gtest_filter=" + ":".join(self.tests)]

    def environment(self):
        return {"LD_BIND_NOW": "1"} if self.program.file in FORKING else {}

    def limit(self):
        return max(SCRIPT_LIMIT if self.program.is_script else LIMIT, STRETCH * self.estimate)


@dataclass(eq=False)
class Listing:
    """The piece that asks a program for the names of its tests."""
    program: Program
    wanted: str  # a filter; "": GTEST_FILTER of the environment
    tests: tuple = ()
    estimate: float = START
    cores: int = 1

    def command(self, report):
        return [self.program.path, LIST] + ([f"--gtest_filter={self.wanted}"] if self.wanted else [])

    def folder(self):
        return None

    def environment(self):
        return {}

    def limit(self):
        return LIMIT


def names_of(listing):
    """The tests that a program has listed: a line "Suite." and, below it, a line "  Test" for each."""
    names, suite = [], ""
    for line in listing.splitlines():
        if match := re.match(r"([\w/]+\.)(  # .*)?$", line):
            suite = match[1]
        elif suite and (match := re.match(r"  ([\w/]+)(  # .*)?$", line)):
            names.append(suite + match[1])
    return names


def cut(program, remembered, jobs):
    """The pieces of a program. `remembered`: seconds of its tests, by name."""
    if program.is_script:
        return [Piece(program, [""], remembered.get("", PER_SCRIPT), min(CORES.get(program.file, 1), jobs))]
    unknown = sum(remembered.values()) / len(remembered) if remembered else SECONDS.get(program.file, PER_TEST)
    seconds = {name: remembered.get(name, unknown) for name in program.tests}
    pieces = []
    for suite, names in suites(program.tests).items():
        cores = min(CORES.get(f"{program.file} {suite}", CORES.get(program.file, 1)), jobs)
        for part in parts(names, seconds):
            cost = sum(seconds[name] for name in part)
            for piece in pieces:  # the first one with room
                if (piece.cores == cores and piece.estimate + cost <= PIECE
                        and len(piece.tests) + len(part) <= MOST_TESTS):
                    piece.tests += part
                    piece.estimate += cost
                    break
            else:
                pieces.append(Piece(program, part, START + cost, cores))
    return pieces


def suites(names):
    found = {}
    for name in names:
        found.setdefault(name.split(".")[0], []).append(name)
    return found


def parts(names, seconds):
    """The tests of a suite: all of them, or runs of neighbours of at most PIECE seconds if the suite is long."""
    if sum(seconds[name] for name in names) <= LONG_SUITE and len(names) <= MOST_TESTS:
        return [list(names)]
    runs, spent = [], PIECE
    for name in names:
        if not runs or spent + seconds[name] > PIECE or len(runs[-1]) == MOST_TESTS:
            runs.append([])
            spent = 0
        runs[-1].append(name)
        spent += seconds[name]
    return runs


@dataclass
class Ended:
    """How the process of a piece ended."""
    code: int  # negative: the signal
    timed_out: bool
    text: str
    report: str  # GoogleTest's JSON; "" if there is none
    cpu: float
    wall: float

    def words(self):
        if self.timed_out:
            return "a timeout"
        return f"signal {-self.code}" if self.code < 0 else f"exit status {self.code}"


@dataclass
class Result:
    """What a piece says about its tests. Each of them is in `seconds`, in `lost` or in `unrun`."""
    seconds: dict = field(default_factory=dict)  # by test that ended, including those below
    failed: list = field(default_factory=list)
    skipped: list = field(default_factory=list)
    lost: list = field(default_factory=list)     # with them the program crashed: failures that nobody repeats
    unrun: list = field(default_factory=list)    # a crash was before them; they need another piece
    broken: list = field(default_factory=list)   # failures of no test: lines
    causes: list = field(default_factory=list)   # the same for `lost`
    reasons: list = field(default_factory=list)  # why tests were skipped: lines
    messages: list = field(default_factory=list)  # (test, text) of each failed expectation
    text: str = ""                               # what the piece said of those that did not pass


def result_of(piece, ended):
    if piece.program.is_script:
        return script_result(piece.program, ended)
    result = from_report(piece, ended) or from_output(piece, ended)
    result.reasons += [f"{place}: {why}" for place, why in re.findall(r"^(\S+:\d+): Skipped\n(.*)$", ended.text, re.M)]
    result.text = without_passed(ended.text)
    # Repeats a failure's text if a long output has buried it.
    said = result.text[-SHOWN // 2:]
    result.text += "".join(f"\n{name}: {text[:2000]}" for name, text in result.messages
                           if text.split("\n", 1)[-1] not in said)
    if ended.code and not (result.failed or result.lost or result.broken):  # at exit, or reported by a sanitizer
        result.broken.append(f"all tests passed, but the program ended with {ended.words()}")
    return result


def script_result(program, ended):
    """Exit status 0 passes, 77 skips; the last line says why."""
    last = (ended.text.strip().splitlines() or [f"it ended with {ended.words()}"])[-1]
    result = Result(seconds={"": ended.wall}, text=ended.text)
    if ended.code not in (0, 77):
        result = Result(lost=[""], causes=[f"{ended.words()}: {last}" if ended.timed_out else last], text=ended.text)
    elif ended.code == 77:
        result.skipped = [""]
        result.reasons = [f"{program.file}: {last[len('skipped: '):] if last.startswith('skipped: ') else last}"]
    return result


def from_report(piece, ended):
    """None: there is no report, or one that GoogleTest 1.12 has spoilt (no comma before a failure of no test)."""
    try:
        report = json.loads(ended.report)
    except ValueError:
        return None
    result, asked = Result(), set(piece.tests)
    for suite in report["testsuites"]:
        for test in suite["testsuite"]:
            name, failures = f"{suite['name']}.{test['name']}", test.get("failures", [])
            if name not in asked:
                result.broken += [f"{name}: {failure['failure'][:2000]}" for failure in failures]
                continue
            result.seconds[name] = float(test.get("time", "0s").rstrip("s"))
            if failures:
                result.failed.append(name)
                result.messages += [(name, failure["failure"]) for failure in failures]
            elif test.get("result") == "SKIPPED":
                result.skipped.append(name)
            elif test.get("result") == "SUPPRESSED":
                result.skipped.append(name)
                result.reasons.append(f"{name}: disabled")
    missing = [name for name in piece.tests if name not in result.seconds]
    if missing:
        result.lost, result.causes = missing, [f"the program has not run {', '.join(missing)}"]
    return result


# The lines that GoogleTest prints around each test and before each suite.
EVENT = re.compile(r"\[ +(RUN|OK|FAILED|SKIPPED|DISABLED) +\] ([\w/]+\.[\w/]+)(?:.*\((\d+) ms\)$)?", re.M)
SUITE = re.compile(r"^\[----------\] \d+ tests? from ([\w/]+)(?:, where .*)?$", re.M)


def from_output(piece, ended):
    """The program has crashed: what its output says of the tests before, of the guilty one, and of those behind it."""
    result, running = Result(), None
    waiting = dict.fromkeys(piece.tests)
    for word, name, milliseconds in EVENT.findall(ended.text):
        if name not in waiting:
            continue
        if word == "RUN":
            running = name
        elif milliseconds or word == "DISABLED":  # the list of failures at the end has no milliseconds
            running = None
            del waiting[name]
            result.seconds[name] = int(milliseconds or 0) / 1000
            result.failed += [name] if word == "FAILED" else []
            result.skipped += [name] if word in ("SKIPPED", "DISABLED") else []
    died = f"no report: the program ended with {ended.words()}"
    begun = (SUITE.findall(ended.text) or [""])[-1]
    behind = [name for name in waiting if name.startswith(begun + ".")]
    if running:
        result.lost, result.causes = [running], [f"{running}: {died}"]
    elif behind:  # in the suite's set-up
        result.lost, result.causes = behind, [f"{begun}, {len(behind)} tests of it were not run: {died}"]
    elif not result.seconds:  # the same would happen again
        result.lost, result.causes = list(waiting), [f"{len(waiting)} tests were not run: {died}"]
    elif waiting or result.failed or not ended.code:  # after the last test of a suite
        result.broken = [f"{begun}: {died}" if begun else died]
    result.unrun = [name for name in waiting if name not in result.lost]
    return result


def without_passed(text):
    """The output without that of the tests that passed: what failed is easier to find, and less is cut off."""
    kept, pending = [], []
    for line in text.splitlines(keepends=True):
        if line.startswith("[ RUN      ] "):
            kept += pending
            pending = [line]
        elif re.search(r"\[(       OK |  SKIPPED )\] .* ms\)$", line):
            pending = []
        elif line.startswith("[  FAILED  ] "):
            kept += [*pending, line]
            pending = []
        elif pending:
            pending.append(line)
        elif not line.startswith(("[----------] ", "Note: Google Test filter = ")):
            kept.append(line)
    return "".join(kept + pending)
