#!/bin/bash
# The check for a machine with a GPU (tools/gpu_pack.py, tools/gpu_check.py) passes with tiny models on the device's
# test double, so that script errors cost no time on a borrowed machine.
#   tests/scripts/gpu_check.sh BUILD
set -euo pipefail
build=$(cd "$1" && pwd)
root=$(cd "$(dirname "$0")/../.." && pwd)
[ -x "$build/tests/device_check" ] || { echo "skipped: a build without LibTorch"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -B "$root/tools/gpu_pack.py" "$build" "$work/pack" --double
torch=$(sed -n 's/^TESSERA_TORCH_DIR:[A-Z]*=//p' "$build/CMakeCache.txt")
mkdir "$work/out"
export TESSERA_TORCH_LIB=${torch:-$root/.deps/torch}/torch/lib OUT=$work/out
python3 -B "$work/pack/gpu_check.py" "$work/pack" --tiny --seconds 3000 > "$work/shown" ||
  { cat "$work/shown"; exit 1; }
passed=$(grep -c '"ok": true' "$work/out/check.jsonl")
[ "$passed" -ge 11 ] || { cat "$work/shown"; exit 1; }
echo "$passed items"
