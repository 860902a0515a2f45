#!/bin/bash
# The CUDA plug-in loads on a machine without a GPU, with every symbol bound, against LibTorch's own CUDA libraries.
# Without a visible device the program reports it and trains on the CPU. Missing NVIDIA libraries are replaced by
# stand-ins (tests/double/stand_ins.py).
#   tests/scripts/cuda_plugin.sh BUILD
set -euo pipefail
build=$(cd "$1" && pwd)
root=$(cd "$(dirname "$0")/../.." && pwd)
[ -e "$build/libtessera_cuda.so" ] ||
  { echo "skipped: the CUDA plug-in is not built here (no nvcc 13 with nccl.h)"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -B "$root/tests/double/stand_ins.py" "$build/libtessera_cuda.so" "$work/lib"
export LD_LIBRARY_PATH=$work/lib CUDA_VISIBLE_DEVICES= OMP_NUM_THREADS=1 HF_HOME=$work

LD_BIND_NOW=1 "$build/tessera" env > "$work/env.txt"
grep -q "plug-in found, 0 devices" "$work/env.txt" ||
  { echo "tessera env does not find the plug-in:"; cat "$work/env.txt"; exit 1; }

for _ in {1..200}; do echo "a small stone of the mosaic"; done > "$work/text.txt"
train() {
  "$build/tessera" train --config_name gpt2-tiny --config_overrides n_layer=1,n_embd=32,n_head=2 --tokenizer_name byte \
    --train_file "$work/text.txt" --block_size 32 --max_steps 2 --output_dir "$work/out" --save_strategy no "$@" \
    > "$work/log.txt" 2>&1
}
code=0; train --device cuda || code=$?
if [ $code != 2 ] || ! grep -q "this process sees no CUDA device" "$work/log.txt"; then
  echo "--device cuda without a device: exit code $code"; cat "$work/log.txt"; exit 1
fi
TESSERA_LOG=debug train --device auto || { echo "--device auto without a device:"; cat "$work/log.txt"; exit 1; }
grep -q "the run stays on the CPU" "$work/log.txt" || { echo "--device auto is silent:"; cat "$work/log.txt"; exit 1; }
