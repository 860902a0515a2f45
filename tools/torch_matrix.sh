#!/bin/bash
# Builds Tessera on each LibTorch release of tools/torch/ and runs the tests that need LibTorch, and those of the
# packages. Each release has dependencies and a build folder of its own, BUILD for the default one, BUILD-torch-RELEASE
# for another; a second run builds only what has changed. The last lines name each release and its result.
#
#   tools/torch_matrix.sh BUILD [RELEASE ...]       environment: JOBS, ONLY (names for tests/run_tests.py --only)
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1; shift
releases=("$@")
[ $# -gt 0 ] || releases=($(cd tools/torch && printf '%s\n' *.txt | sed 's/\.txt$//' | sort -V))
default=$(sed -n 's/^default=\([0-9.]*\).*/\1/p' tools/deps.sh)
verdicts=() status=0
for release in "${releases[@]}"; do
  tools/deps.sh --torch "$release"
  folder=$build torch=${TESSERA_DEPS:-.deps}/torch
  [ "$release" = "$default" ] || { folder=$build-torch-$release torch+=-$release; }
  echo "torch-matrix: LibTorch $release in $folder"
  log=$(mktemp)
  verdict=failed
  if tools/build.sh default "$folder" -DTESSERA_TORCH_DIR="$(cd "$torch" && pwd)"; then
    only=${ONLY:-$(cd "$folder/tests" && printf '%s\n' *_tests | sed 's/_tests$//' | grep -vx structure | paste -sd ,)}
    only=${ONLY:-$only,wheel,wheel_libraries,outside_project,python_backend}
    python3 tests/run_tests.py "$folder" --only "$only" 2>&1 | tee "$log" && verdict=passed
    verdict+=": $(tail -1 "$log")"
  else
    verdict+=" to build"
  fi
  rm -f "$log"
  [[ $verdict = passed* ]] || status=1
  verdicts+=("LibTorch $release $verdict")
done
printf 'torch-matrix: %s\n' "${verdicts[@]}"
exit $status
