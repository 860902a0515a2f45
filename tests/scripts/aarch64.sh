#!/bin/bash
# The kernels for 64-bit ARM, on a machine that has the cross compiler, the emulator and the libraries
# (tools/deps_aarch64.sh; this script downloads nothing). `make aarch64-check` runs everything.
set -euo pipefail
cd "$(dirname "$0")/../.."
for needed in aarch64-linux-gnu-g++ qemu-aarch64-static; do
  command -v "$needed" > /dev/null || { echo "skipped: no $needed (tools/deps_aarch64.sh installs it)"; exit 77; }
done
[ -e .deps/aarch64/sysroot/.installed ] || { echo "skipped: no arm64 libraries (tools/deps_aarch64.sh)"; exit 77; }
tools/aarch64_run.sh true || { echo "skipped: binfmt_misc cannot be had in a user namespace"; exit 77; }
tools/build.sh aarch64 build-aarch64 kernels_tests
tools/aarch64_check.sh build-aarch64 kernels
