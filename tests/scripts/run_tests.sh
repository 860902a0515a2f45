# tests/run_tests.py on made-up test programs: what passes alone is flaky and named, and four in a run fail it.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
build=$(mktemp -d); trap 'rm -rf "$build"' EXIT
mkdir "$build/tests"

# program NAME "PASSING" "FLAKY" "FAILING": flaky tests fail unless a filter asks for them by name.
program() {
  cat > "$build/tests/$1_tests" <<PROGRAM
#!/usr/bin/env python3
import json, sys
given = dict(a.lstrip("-").split("=", 1) for a in sys.argv[1:] if "=" in a)
asked = given.get("gtest_filter", "").split(":")
names = [(n, kind) for kind, words in (("ok", "$2"), ("flaky", "$3"), ("bad", "$4")) for n in words.split()]
failing = [n for n, kind in names if kind == "bad" or (kind == "flaky" and f"S.{n}" not in asked)]
if "gtest_filter" in given:
    failing = [n for n in failing if f"S.{n}" in asked]
if "gtest_output" in given:
    tests = [{"name": n, **({"failures": [{"failure": "it broke"}]} if n in failing else {})} for n, _ in names]
    suites = [{"name": "S", "testsuite": tests}]
    json.dump({"tests": len(names), "failures": len(failing), "errors": 0, "testsuites": suites},
              open(given["gtest_output"].removeprefix("json:"), "w"))
sys.exit(bool(failing) or int("$2" == "dies"))
PROGRAM
  chmod +x "$build/tests/$1_tests"
}
# expect STATUS NAMES LINE...: what run_tests.py ends with and the last lines that it prints.
expect() {
  local status=0 wanted=$1 names=$2; shift 2
  python3 "$here/run_tests.py" "$build" --only "$names" > "$build/said" || status=$?
  printf '%s\n' "$@" | diff - <(tail -n $# "$build/said") || { cat "$build/said"; exit 1; }
  [ "$status" = "$wanted" ] || { echo "exit status $status, not $wanted"; cat "$build/said"; exit 1; }
}

program calm "a b c" "" ""
program shaky "d" "e f g" ""
program nervous "" "h" ""
program broken "i" "j" "k"
program dying "dies" "" ""
expect 0 calm "3 passed, 0 failed"
expect 0 calm,shaky "flaky: S.e, S.f, S.g" "7 passed, 0 failed"
expect 1 calm,shaky,nervous "4 flaky tests count as failures: more than 3 in one run" "flaky: S.h, S.e, S.f, S.g" \
  "4 passed, 4 failed"
expect 1 broken "failed: $build/tests/broken_tests: S.j" "failed: $build/tests/broken_tests: S.k" \
  "1 passed, 2 failed"  # what fails alone, too, is a failure, and so are those tried with it
expect 1 dying "failed: $build/tests/dying_tests: all tests passed, but the program ended with exit status 1" \
  "1 passed, 1 failed"
expect 1 none "0 passed, 0 failed"
