#!/bin/bash
# The transport mpi under every MPI library that tools/deps_mpi.sh has installed: the conformance suite of the C
# interface and the errors of failing groups, with the library's own mpirun; errors without a library and under another
# launcher.
#   tests/scripts/mpi.sh BUILD
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
libraries=$(cd "${TESSERA_DEPS:-$root/.deps}/mpi" 2> /dev/null && pwd) ||
  { echo "no MPI library: tools/deps_mpi.sh installs MPICH 5"; exit 77; }
rank=$build/tests/mpi_conformance
[ -x "$rank" ] || { echo "$rank is not built"; exit 77; }
fail() { echo "mpi: $*" >&2; exit 1; }
unset TESSERA_MPI_LIBRARY
export OMP_NUM_THREADS=1

under() {  # NAME RANKS FILTER TESTS: every rank must pass so many; the output is in $work/said
  local name=$1 ranks=$2 filter=$3 tests=$4
  status=0
  TESSERA_TEST_MPI_RANKS=$ranks timeout -k 5 120 "$libraries/$name/mpirun" -n "$ranks" "$rank" --gtest_color=no \
    --gtest_filter="$filter" > "$work/said" 2>&1 || status=$?
  [ "$(grep -o '       OK ' "$work/said" | wc -l)" = $((ranks * tests)) ] && ! grep -q '  FAILED  ' "$work/said"
}

for folder in "$libraries"/*; do
  [ -f "$folder/.installed" ] || continue
  name=${folder##*/}
  if [ -e "$folder/mpicc" ]; then  # without the standard ABI
    mkdir "$work/$name"
    MPICC=$folder/mpicc "$root/tools/mpi_shim.sh" "$work/$name" > /dev/null
    export TESSERA_MPI_LIBRARY=$work/$name/libtessera_mpi_shim.so
  fi
  for ranks in 2 3 4; do
    under "$name" "$ranks" 'All/Conformance.*' 8 && [ $status = 0 ] ||
      { grep -v '^\[ \(RUN\|      OK\)' "$work/said" | head -40; fail "$name, $ranks ranks"; }
  done
  # mpirun reports the failed groups' processes, which end without MPI_Finalize: its status does not count.
  under "$name" 2 'MpiFailure.*' 6 || { head -60 "$work/said"; fail "$name: failures"; }
  under "$name" 3 'MpiFailure.DifferentCounts*' 1 || { head -60 "$work/said"; fail "$name: a mismatch of 3 ranks"; }
  status=0
  TESSERA_TEST_MPI_RANKS=2 timeout -k 5 60 "$libraries/$name/mpirun" -n 2 "$rank" --gtest_filter=MpiExit.* \
    > "$work/said" 2>&1 || status=$?
  grep -q "the slow rank has ended" "$work/said" && [ $status = 0 ] ||
    { head -40 "$work/said"; fail "$name: a program without tessera_shutdown() ends with $status"; }
  unset TESSERA_MPI_LIBRARY
  echo "$name: 2, 3 and 4 ranks"
done

# Refusals name what to do.
refused() {  # WHAT EXPECTED ...: under our launcher
  local what=$1; shift
  TESSERA_TEST_MPI_RANKS=2 PATH=/usr/bin:/bin timeout 60 "$build/tessera" launch --num_processes 2 "$rank" \
    --gtest_filter='All/Conformance.UnevenParts*' > "$work/said" 2>&1 && fail "$what: accepted"
  for expected in "$@"; do
    grep -qF -- "$expected" "$work/said" || { head -20 "$work/said"; fail "$what: no '$expected'"; }
  done
}
if ! ldconfig -p | grep -q libmpi_abi && [ ! -e /usr/bin/mpiexec ]; then
  refused "no library" "libmpi_abi.so.1" "pip install mpich" "mpi_shim.sh"
fi
TESSERA_MPI_LIBRARY=/nowhere/libmpi.so refused "a missing file" "TESSERA_MPI_LIBRARY=/nowhere/libmpi.so"
TESSERA_MPI_LIBRARY=$libraries/mpich/root/lib/libmpi.so.12 refused "a library with its own ABI" "Compile a shim"
TESSERA_MPI_LIBRARY=$libraries/mpich/root/lib/libmpi_abi.so.1 refused "another launcher" \
  "'world' has 2 ranks" "sees 1 process" "mpirun"
