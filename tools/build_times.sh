#!/bin/bash
# `make build-times`: CPU-seconds of a cold build by part, its heaviest units, and the cost of one changed file, against
# the budgets in tests/scripts/unit_seconds.sh. Uses separate build folders and no ccache, so it measures the
# compiler; CPU-seconds, because they depend less on other work on the machine.
set -euo pipefail
cd "$(dirname "$0")/.."
export CCACHE_DISABLE=1
work=$(mktemp -d "${TMPDIR:-/tmp}/tessera-build-times.XXXXXX")
trap 'rm -rf "$work"' EXIT

cpu_seconds() {  # COMMAND...: its user and system time, including that of its children
  { TIMEFORMAT='%U %S'; time "$@" > "$work/log" 2>&1; } 2> "$work/time" || { cat "$work/log"; exit 1; }
  awk '{ print $1 + $2 }' "$work/time"
}
measure() {  # TITLE COMMAND...
  local spent
  spent=$(cpu_seconds "${@:2}")  # a failure ends the script because the assignment is a separate command
  printf '%-52s %8.1f CPU-s\n' "$1" "$spent"
}

measure "the torch-free part: library and program" tools/build.sh core "$work/core" tessera_core tessera_program
measure "make train: library and program" tools/build.sh default "$work/all" tessera_program tessera_tool
measure "make build: with examples and tests, in addition" tools/build.sh default "$work/all"
echo "by part (compilation only):"
awk '{ sub(/^tests\/CMakeFiles\//, "CMakeFiles/tests/", $2); split($2, p, "/"); part = p[2] == "tests" ? "tests" : p[2]
       sub(/^tessera_layer_/, "", part); sub(/\.dir$/, "", part); sum[part] += $1 }
     END { for (part in sum) printf "  %-50s %8.1f CPU-s\n", part, sum[part] }' "$work/all/unit_seconds.txt" | sort
echo "heaviest units:"
sort -rn "$work/all/unit_seconds.txt" | head -12 | awk '{ printf "  %7.1f  %s\n", $1, $2 }'
bash tests/scripts/unit_seconds.sh "$work/all"

# An edit that really changes the object: one line at the end of a file, in a layer with modules, one with tensors, and
# one without tensors.
for file in tessera/train/loop/trainer.cpp tessera/comm/group.cpp tessera/config/core/fields.cpp; do
  cp -p "$file" "$work/saved"
  echo "namespace tessera { int build_times_probe_$(basename "$file" .cpp)() { return 1; } }" >> "$file"
  status=0
  (measure "one changed file, compiled and linked: $(basename "$file")" \
    ninja --quiet -C "$work/all" tessera_program tessera_tool) || status=$?
  cp -p "$work/saved" "$file"
  [ $status = 0 ]
done
