#!/bin/bash
# Formats every C and C++ source with the clang-format that tools/deps.sh pins. With --check (tests/scripts/format.sh)
# nothing is changed: files that differ are listed, and the exit status is 1 if there are any.
set -euo pipefail
cd "$(dirname "$0")/.."
program=${TESSERA_DEPS:-.deps}/clang-format/clang_format/data/bin/clang-format
[ -x "$program" ] || { echo "there is no $program: run tools/deps.sh (or make deps)"; exit 1; }
if [ "${1:-}" != --check ]; then
  git ls-files '*.cpp' '*.h' '*.cu' '*.cuh' '*.c' | xargs -P2 -n50 "$program" -i
  exit
fi
wrong=$(git ls-files '*.cpp' '*.h' '*.cu' '*.cuh' '*.c' | { xargs -P2 -n50 "$program" -n 2>&1 || true; } |
  sed -n 's/^\([^:]*\):[0-9]*:[0-9]*: warning: code should be clang-formatted.*/\1/p' | sort -u)
[ -z "$wrong" ] || { echo "not as clang-format has them; run: make format"; echo "$wrong"; exit 1; }
