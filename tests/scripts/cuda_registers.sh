#!/bin/bash
# CUDA kernels keep everything in registers: ptxas reports no spills and no stack, and at most 64 registers per thread,
# so that at least 1,024 threads fit on a multiprocessor. A kernel that needs more declares it in a line "registers: N".
#   tests/scripts/cuda_registers.sh BUILD
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
[ -x "$nvcc" ] || { echo "skipped: no nvcc"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
kernels=0
for source in "$root"/tessera/kernels/cuda/*.cu; do
  most=$(sed -n 's|^// registers: \([0-9]*\)$|\1|p' "$source")
  "$nvcc" -std=c++20 -O3 --expt-relaxed-constexpr -arch=sm_90 -Xptxas -v -I "$root" -cubin -o "$work/kernel.cubin" \
    "$source" 2> "$work/log"
  while read -r registers; do
    kernels=$((kernels + 1))
    [ "$registers" -le "${most:-64}" ] ||
      { echo "$source: $registers registers of at most ${most:-64}"; cat "$work/log"; exit 1; }
  done < <(sed -n 's/.*Used \([0-9]*\) registers.*/\1/p' "$work/log")
  if grep -E "[1-9][0-9]* bytes (stack frame|spill)" "$work/log"; then
    echo "$source: a kernel spills"; exit 1
  fi
done
[ $kernels -gt 0 ] || { echo "ptxas reported no kernel"; exit 1; }
echo "$kernels kernels"
