#!/bin/bash
# tests/run_tests.py on made-up test programs: no test is lost after a crash or a hang, pieces run concurrently and
# outside of the checkout, a test that passes only on a rerun is reported as flaky, and four flaky tests in a run fail
# it.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
build=$work/build
mkdir -p "$build/tests" "$work/notes"
fail() { echo "$*"; cat "$work/said"; exit 1; }

# A program that behaves like GoogleTest. Its tests are lines "SUITE.TEST WHAT [ARGUMENT]" below the code.
cat > "$work/fake.py" <<'PY'
import json, os, signal, sys, time
notes = os.path.join(os.path.dirname(os.path.abspath(__file__)), "notes")
flags = dict((a + "=").lstrip("-").split("=", 1) for a in sys.argv[2:])
tests = [line.split()[1:] for line in open(sys.argv[1]) if line.startswith("# ") and line.strip() != "#"]
wanted = flags.get("gtest_filter", "=").rstrip("=")
tests = [test for test in tests if wanted in ("", "*") or test[0] in wanted.split(":")]
def note(name): return os.path.join(notes, name)
def first(name):
    if os.path.exists(note(name)): return False
    open(note(name), "w").close()
    return True
def waited_for(name):
    for _ in range(300):
        if os.path.exists(note(name)): return True
        time.sleep(0.01)
    return False
def outcome(name, what, argument=""):
    if what == "bad" or what == "flaky" and first(name): return "FAILED"
    if what == "skip": return "SKIPPED"
    if what == "crash": os.kill(os.getpid(), signal.SIGSEGV)
    if what == "quit": os._exit(0)
    if what == "meet":  # another piece that runs at the same time
        open(note(name), "w").close()
        return "OK" if waited_for(argument) else "FAILED"
    if what == "alone":  # no other piece runs
        if not first("alone"): return "FAILED"
        time.sleep(0.2)
        os.remove(note("alone"))
    if what == "where":
        open(note("where"), "w").write(os.getcwd() + "\n" + " ".join(os.listdir(".")))
        open("left", "w").close()
    if what == "hang":
        import subprocess
        child = subprocess.Popen(["sleep", "60"], preexec_fn=os.setpgrp)
        open(note(f"child.{child.pid}"), "w").close()
        time.sleep(60)
    return "OK"
if "gtest_list_tests" in flags:
    print("Running main() from fake.py")
    if any(test[1] == "dumb" for test in tests): sys.exit(3)
    for suite in dict.fromkeys(test[0].split(".")[0] for test in tests):
        print(f"{suite}.  # TypeParam = int")
        for test in tests:
            if test[0].startswith(suite + "."): print(f"  {test[0].split('.')[1]}  # GetParam() = 1")
    sys.exit()
rows, suite = [], None
for name, what, *argument in tests:
    if name.split(".")[0] != suite:
        suite = name.split(".")[0]
        print(f"[----------] 1 test from {suite}", flush=True)
        if what == "setup": os._exit(1)
    print(f"[ RUN      ] {name}", flush=True)
    end = outcome(name, what, *argument)
    if end == "SKIPPED": print("fake.cpp:1: Skipped\nno reason")
    if end == "FAILED": print("said by", name)
    print(f"[{end:>9} ] {name} (1000 ms)", flush=True)
    rows.append({"name": suite, "testsuite": [{"name": name.split(".")[1], "time": "1s", "result": end, **(
        {"failures": [{"failure": "fake.cpp:1\nit broke"}]} if end == "FAILED" else {})}]})
report = {"testsuites": [row for row, test in zip(rows, tests) if test[1] != "lose"]}
json.dump(report, open(flags["gtest_output"].split(":", 1)[1].rstrip("="), "w"))
sys.exit(any("failures" in row["testsuite"][0] for row in rows) or any(test[1] == "dies" for test in tests))
PY
# program NAME "SUITE.TEST WHAT" ...
program() {
  local path=$build/tests/$1_tests; shift
  { printf '#!/bin/sh\nexec python3 -S "%s" "$0" "$@"\n' "$work/fake.py"; printf '# %s\n' "$@"; } > "$path"
  chmod +x "$path"
}
# run NAMES [FLAG ...]: sets `said` and `status`. CHANGE is Python that first changes a limit or a table.
run() {
  local names=$1; shift
  status=0
  python3 - "$build" --only "$names" "$@" > "$work/said" 2>&1 <<PY || status=$?
import sys
sys.path.insert(0, "$here")
import run_tests, test_pieces
${CHANGE:-}
sys.argv[0] = "run_tests.py"
sys.exit(run_tests.main())
PY
}
# expect STATUS NAMES LINE...: the exit status of run_tests.py and the last lines that it prints.
expect() {
  local wanted=$1 names=$2; shift 2
  rm -rf "$work/notes"; mkdir "$work/notes"
  run "$names" --jobs 2
  printf '%s\n' "$@" | diff - <(tail -n $# "$work/said") || fail "$names: not the last lines"
  [ "$status" = "$wanted" ] || fail "$names: exit status $status, not $wanted"
}
failed() { echo "failed: $build/tests/$1_tests: $2"; }

# A test that passes on a rerun is flaky.
program calm "S.a ok" "S.b ok" "T/1.c ok"
program shaky "S.d ok" "S.e flaky" "S.f flaky" "S.g flaky"
program nervous "S.h flaky"
expect 0 calm,shaky "flaky: S.e, S.f, S.g" "7 passed, 0 failed"
grep -q '^shaky| said by S.e' "$work/said" || fail "the output of a failing piece is not shown"
expect 1 calm,shaky,nervous "4 flaky tests count as failures: more than 3 in one run" "flaky: S.h, S.e, S.f, S.g" \
  "4 passed, 4 failed"
expect 1 none "0 passed, 0 failed"

# A test that fails again is a failure, and so are those rerun with it; if many fail, they are not rerun. A crash is one
# failure, with a name, and hides nothing.
program broken "S.i ok" "S.j flaky" "S.k bad"
program crashing "S.a ok" "S.b crash" "S.c ok" "T.d crash" "U.e ok"
program dumb "S.a dumb"
program dying "S.l dies"
program empty
program idle "S.m skip" "S.n ok"
program losing "S.a ok" "S.b lose"
program quitting "S.a quit" "S.b ok"
program ruined "S.a flaky" "S.b flaky" "S.c flaky" "S.d flaky"
program unready "S.a ok" "T.b setup" "T.c ok" "U.d ok"
died="no report: the program ended with"
expect 1 broken,crashing,dumb,dying,empty,idle,losing,quitting,ruined,unready "skipped: fake.cpp:1: no reason" \
  "$(failed broken S.j)" "$(failed broken S.k)" \
  "$(failed crashing "S.b: $died signal 11")" "$(failed crashing "T.d: $died signal 11")" \
  "$(failed dumb "it does not list its tests: it ended with exit status 3")" \
  "$(failed dying "all tests passed, but the program ended with exit status 1")" \
  "$(failed empty "it does not list its tests: it ended with exit status 0")" \
  "$(failed losing "the program has not run S.b")" \
  "$(failed quitting "S.a: $died exit status 0")" \
  "$(failed ruined S.a)" "$(failed ruined S.b)" "$(failed ruined S.c)" "$(failed ruined S.d)" \
  "$(failed unready "T, 2 tests of it were not run: $died exit status 1")" \
  "10 passed, 15 failed, 1 skipped"

# Two pieces of a program run at the same time if its suites are recorded as long; a piece that takes both cores runs
# alone; each runs in its own empty folder, which is removed afterwards.
program both "V.a meet W.b" "W.b meet V.a"
program first "S.a alone"
program second "S.a alone"
program lost "S.a where"
echo '{"both_tests": {"V.a": 18, "W.b": 18}}' > "$build/tests/durations.json"
CHANGE='test_pieces.CORES["first_tests"] = test_pieces.CORES["second_tests S"] = test_pieces.ALONE' \
  expect 0 both,first,lost,second "5 passed, 0 failed"
! grep '^flaky' "$work/said" || fail "pieces did not run at the same time, or not alone"
grep -q '"W.b": 1.0' "$build/tests/durations.json" || fail "the durations of this run are not remembered"
{ read -r folder; read -r content || true; } < "$work/notes/where"
case $folder/ in "$(dirname "$here")"/* | "$build"/* | "$PWD"/) fail "a piece ran in $folder" ;; esac
[ -z "$content" ] || fail "the folder of a piece contained $content"
[ ! -e "$folder" ] || fail "$folder was left behind"

# A piece that hangs is killed with all its child processes, and so is everything on a signal.
# all_ended: checks the children; a zombie counts as ended.
all_ended() {
  local note
  for note in "$work"/notes/child.*; do
    [ -e "$note" ] || fail "no test hung"
    ! grep -qs '^State:.[^Z]' "/proc/${note##*.}/status" || fail "$1: a process of a piece still runs"
  done
}
program hanging "S.a hang" "S.b ok"
CHANGE='test_pieces.LIMIT = 2; test_pieces.STRETCH = run_tests.MAX_HUNG = 1' \
  expect 1 hanging "$(failed hanging "S.a: $died a timeout")" \
  "$(failed hanging "1 tests were not run: 1 pieces before them hung")" "0 passed, 2 failed"
all_ended timeout
rm "$work"/notes/child.*
python3 "$here/run_tests.py" "$build" --only hanging > "$work/said" 2>&1 & runner=$!
for _ in $(seq 100); do compgen -G "$work/notes/child.*" > /dev/null && break; sleep 0.05; done
kill -TERM $runner
status=0; wait $runner || status=$?
[ $status = 130 ] || fail "exit status $status after a signal, not 130"
all_ended signal

# --list and --filter.
run calm,idle --list
printf '%s\n' "calm_tests S.a" "calm_tests S.b" "calm_tests T/1.c" "idle_tests S.m" "idle_tests S.n" |
  diff - "$work/said" || fail "--list"
run calm,idle --filter S.a:S.n
[ "$(tail -n 1 "$work/said")" = "2 passed, 0 failed" ] || fail "--filter"

# Suites stay together unless they are long, and no test is lost or runs twice.
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$here python3 - <<'PY'
from test_pieces import Program, cut
tests = [f"{suite}.{i}" for suite, n in (("A", 20), ("B", 20), ("Long", 50), ("In/Many/0", 2000)) for i in range(n)]
seconds = {name: {"A": 0.3, "B": 1.2, "L": 1, "I": 0}[name[0]] for name in tests}
pieces = [piece.tests for piece in cut(Program("/x/tests/x_tests", "x", "/x", tests), seconds, 2)]
assert sorted(name for piece in pieces for name in piece) == sorted(tests)
homes = {suite: [piece for piece in pieces if any(name.startswith(suite + ".") for name in piece)]
         for suite in ("A", "B", "Long", "In/Many/0")}
assert [len(homes[suite]) for suite in homes] == [1, 1, 2, 3], {suite: len(homes[suite]) for suite in homes}
assert round(max(sum(seconds[name] for name in piece) for piece in pieces)) == 30
PY
