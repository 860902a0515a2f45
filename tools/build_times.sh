#!/bin/bash
# `make build-times`: cold, incremental and torch-free build times against their budgets (2 cores). Uses folders of its
# own and no ccache, so it measures the compiler.
set -euo pipefail
cd "$(dirname "$0")/.."
export CCACHE_DISABLE=1
work=$(mktemp -d "${TMPDIR:-/tmp}/tessera-build-times.XXXXXX")
trap 'rm -rf "$work"' EXIT
now() { date +%s.%N; }
row() {
  awk -v what="$1" -v s="$2" -v b="$3" \
    'BEGIN { printf "%-44s %7.1f s   budget %5d s   %s\n", what, s, b, s <= b ? "ok" : "OVER" }'
}
since() { awk -v a="$1" -v b="$(now)" 'BEGIN { print b - a }'; }

t=$(now); cmake --preset core -B "$work/core" --log-level=NOTICE
ninja --quiet -C "$work/core" tessera_core tessera_program
row "torch-free part, cold (library and program)" "$(since "$t")" 90
t=$(now); cmake --preset default -B "$work/all" --log-level=NOTICE; ninja --quiet -C "$work/all"
row "everything, cold (make build)" "$(since "$t")" 720
# an edit that really changes the object: one line at the end of one file of a layer with modules, one with tensors, one
# core
for file in tessera/train/loop/trainer.cpp tessera/comm/group.cpp tessera/config/core/fields.cpp; do
  cp -p "$file" "$work/saved"
  echo "namespace tessera { int build_times_probe_$(basename "$file" .cpp)() { return 1; } }" >> "$file"
  t=$(now); status=0; ninja --quiet -C "$work/all" tessera_program tessera_tool || status=$?
  cp -p "$work/saved" "$file"; [ $status = 0 ]
  row "one changed file, rebuilt and linked: $(basename "$file")" "$(since "$t")" 20
done
