"""Runs every test of one or more build folders and adds them up.

    python3 tests/run_tests.py BUILD_DIR [BUILD_DIR ...] [--only NAME,NAME]

tests/FOLDER became BUILD_DIR/tests/FOLDER_tests (GoogleTest); tests/scripts/*.sh and tests/launchers/*.sh (run once,
with the first build folder as argument) count as one test each: exit status 0 passes, 77 skips. They run one after
another, because the multi-process tests use both cores of the smallest machine we support and time what they do. A
program that crashes counts as one failure. What was skipped is named, with the reason, and so is what failed: whoever
sees the last lines only knows where to look. A test that fails and then passes alone counts as passed, but it is flaky:
the line before the last names such tests, and more than three in one run count as failures. The last line is "N passed,
N failed" (and ", N skipped"); the exit status is 0 only when nothing failed and something ran.
"""
import argparse, glob, json, os, re, subprocess, sys, tempfile, time

TIMEOUT = 900  # seconds for one program: far above the slowest; a hang must not eat the CI budget
MAX_FLAKY = 3  # tests that may fail once and pass alone: of one program, to be tried again, and of the whole run
HERE = os.path.dirname(os.path.abspath(__file__))


# Property tests draw the same cases in every run, so that a change is judged by what it changed. RC_PARAMS=seed=N draws
# others.
os.environ.setdefault("RC_PARAMS", "seed=20261121")


def execute(command):
    """(exit code, output); a timeout is exit code -1."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", timeout=TIMEOUT)
        return done.returncode, done.stdout
    except subprocess.TimeoutExpired as e:
        return -1, (e.stdout or b"").decode(errors="replace") + f"\ntimed out after {TIMEOUT} s"


def ended(code):
    """How a program ended, in words."""
    return f"signal {-code}" if code < -1 else "a timeout" if code == -1 else f"exit status {code}"


def google_test(program):
    """(passed, failed, skipped, output, flaky tests, what was skipped and why, what failed) of a GoogleTest program."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        code, text = execute([program, f"--gtest_output=json:{out.name}", "--gtest_brief=1"])
        try:
            report = json.load(open(out.name))
        except ValueError:
            return 0, 1, 0, text, [], [], [f"no report: the program ended with {ended(code)}"]
    failures = [(f"{suite['name']}.{t['name']}", t["failures"]) for suite in report["testsuites"]
                for t in suite["testsuite"] if t.get("failures")]
    # What is lost in a long output: which tests, and why. Many measure time with real processes on a machine that
    # others use as well, so a few failures are tried once more, alone; it is said, with the first failure's text.
    text += "".join(f"\n{name}: {failure['failure'][:2000]}" for name, all_of_it in failures for failure in all_of_it)
    flaky = []
    if code != 0 and 0 < len(failures) <= MAX_FLAKY:
        again, _ = execute([program, "--gtest_brief=1", "--gtest_filter=" + ":".join(name for name, _ in failures)])
        if again == 0:
            print(f"passed when run again, alone: {text[-4000:]}", flush=True)
            flaky = [name for name, _ in failures]
            code, report["failures"] = 0, 0
    failed = report["failures"] + report.get("errors", 0)
    broken = [name for name, _ in failures] if failed else []
    if code != 0 and failed == 0:  # it died at its end, or a sanitizer spoke then
        broken = [f"all tests passed, but the program ended with {ended(code)}"]
    skipped = sum(t.get("result") == "SKIPPED" for suite in report["testsuites"] for t in suite["testsuite"])
    reasons = [f"{place}: {why}" for place, why in re.findall(r"^(\S+:\d+): Skipped\n(.*)$", text, re.M)]
    passed = report["tests"] - failed - skipped
    return passed, failed + (code != 0 and failed == 0), skipped, text, flaky, reasons, broken


def script(path, build):
    code, text = execute(["bash", path, build])
    said = text.strip().splitlines()[-1:] if code == 77 else []
    why = [f"{os.path.basename(path)}: {line.removeprefix('skipped: ')}" for line in said]
    failed = code not in (0, 77)
    broken = (text.strip().splitlines()[-1:] or [f"it ended with {ended(code)}"]) if failed else []
    return int(code == 0), int(failed), int(code == 77), text, [], why, broken


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", nargs="+")
    parser.add_argument("--only", default="", help="names without _tests or .sh, separated by commas")
    args = parser.parse_args()
    only = set(filter(None, args.only.split(",")))
    jobs = []
    for build in args.build:
        for p in sorted(glob.glob(os.path.join(build, "tests", "*_tests"))):
            jobs.append((os.path.basename(p)[: -len("_tests")], f"{p}", lambda p=p: google_test(p)))
    for p in sorted(p for folder in ("scripts", "launchers") for p in glob.glob(os.path.join(HERE, folder, "*.sh"))):
        jobs.append((os.path.basename(p)[:-3], os.path.relpath(p), lambda p=p: script(p, args.build[0])))
    sums, all_flaky, all_skipped, all_broken = [0, 0, 0], [], [], []
    for name, title, job in jobs:
        if only and name not in only:
            continue
        begin = time.time()
        *counts, text, flaky, skipped, broken = job()
        all_flaky += flaky
        all_skipped += skipped
        all_broken += [f"{title}: {what}" for what in broken]
        sums = [a + b for a, b in zip(sums, counts)]
        print(f"{title:36s} {counts[0]:5d} passed {counts[1]:3d} failed {counts[2]:3d} skipped "
              f"{time.time() - begin:7.1f} s", flush=True)
        if counts[1]:
            print(text[-20000:], flush=True)
    for line in all_skipped:
        print(f"skipped: {line}")
    if len(all_flaky) > MAX_FLAKY:
        print(f"{len(all_flaky)} flaky tests count as failures: more than {MAX_FLAKY} in one run")
        sums[0] -= len(all_flaky)
        sums[1] += len(all_flaky)
    if all_flaky:
        print("flaky: " + ", ".join(all_flaky))
    for line in all_broken:
        print(f"failed: {line}")
    print(f"{sums[0]} passed, {sums[1]} failed" + (f", {sums[2]} skipped" if sums[2] else ""))
    return 0 if sums[0] and not sums[1] else 1


if __name__ == "__main__":
    sys.exit(main())
