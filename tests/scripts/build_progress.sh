#!/bin/bash
# tools/build.sh when its output is a log: a line for every 25th step, all compiler output below its step, ninja's exit
# status, and no CMake output unless it fails. Uses fake cmake and ninja programs.
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
fail() { echo "$1"; cat "$work/log"; exit 1; }
cat > "$work/cmake" <<'SH'
#!/bin/bash
echo "-- Configuring done"
[ ! -e "$(dirname "$0")/broken" ] || { echo "CMake Error: no such preset"; exit 1; }
SH
cat > "$work/ninja" <<'SH'
#!/bin/bash
echo "ninja: Entering directory \`build'"
for i in $(seq 1 100); do
  [ "$i" != 70 ] || [ ! -e "$(dirname "$0")/slow" ] || sleep 10
  echo "${NINJA_STATUS//\%f/$i}Building step $i" | sed 's/%t/100/'
  if [ "$i" = 60 ]; then printf 'FAILED: step60.o\na.cpp:1:2: error: what it says %%s \\n\n   with its indent'; echo; fi
done
echo "$*" > "$(dirname "$0")/arguments"
exit 7
SH
chmod +x "$work/cmake" "$work/ninja"
status=0
PATH="$work:$PATH" JOBS=3 tools/build.sh default "$work/build" one two > "$work/log" 2>&1 || status=$?
[ $status = 7 ] || fail "the exit status is $status, ninja's is 7"
[ "$(cat "$work/arguments")" = "-C $work/build -j 3 one two" ] || fail "ninja got $(cat "$work/arguments")"
cat > "$work/wanted" <<'TXT'
[1/100] Building step 1
[26/100] Building step 26
[51/100] Building step 51
[60/100] Building step 60
FAILED: step60.o
a.cpp:1:2: error: what it says %s \n
   with its indent
[76/100] Building step 76
[100/100] Building step 100
TXT
sed -i 's/^\(\[[0-9]*\/100\), [0-9]* s\(, about [0-9]* s left\)\?\]/\1]/' "$work/log"
cmp "$work/wanted" "$work/log" || fail "not what it should show"
touch "$work/slow"  # one step takes over ten seconds; the progress line must still update
PATH="$work:$PATH" tools/build.sh default "$work/build" > "$work/log" 2>&1 || true
grep -qE '^\[69/100, ([89]|10) s' "$work/log" || fail "nothing was shown for ten seconds"
grep -qE '^\[76/100, 1[0-9] s, about [0-9] s left\] Building step 76$' "$work/log" || fail "the time left is not shown"
touch "$work/broken"
status=0
PATH="$work:$PATH" tools/build.sh default "$work/build" > "$work/log" 2>&1 || status=$?
[ $status = 1 ] || fail "CMake failed, the exit status is $status"
grep -q "CMake Error: no such preset" "$work/log" || fail "CMake's error is not shown"
