#!/bin/bash
# The build does not depend on the build machine's processor: the kernels' tests and the program run on an emulated
# processor without AVX (Nehalem, 2008), and so do bf16 products, which take another path without bf16 instructions.
# Training is not emulated here, because ten steps take a minute.
#   tests/scripts/older_processors.sh BUILD
set -euo pipefail
build=$(cd "$1" && pwd)
command -v qemu-x86_64-static > /dev/null ||
  { echo "skipped: no qemu-x86_64-static (Debian's qemu-user-static)"; exit 77; }
[ "$(uname -m)" = x86_64 ] || { echo "skipped: this is not x86-64"; exit 77; }
if grep -oE -- '-m(arch|tune)=native' "$build/compile_commands.json"; then
  echo "older_processors: compiled for the machine of the build" >&2
  exit 1
fi
older=(qemu-x86_64-static -cpu Nehalem)
"${older[@]}" "$build/tessera" --version
OMP_NUM_THREADS=1 "${older[@]}" "$build/tests/kernels_tests" --gtest_brief=1
[ ! -x "$build/tests/nn_tests" ] ||  # absent in a build without LibTorch
  OMP_NUM_THREADS=1 "${older[@]}" "$build/tests/nn_tests" --gtest_brief=1 \
    --gtest_filter='Operations.*Bf16*:MoeExperts.Autocast'
