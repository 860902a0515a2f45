#!/bin/bash
# Runs ten training steps of a tiny GPT-2 on this x86-64 machine and, emulated, on 64-bit ARM: every loss must agree
# within 1e-6. First cross-compiles the whole library against LibTorch's aarch64 wheel (0.42 GB; ten minutes of
# processor
# time), so it must be started manually: tools/aarch64_parity.sh [BUILD] [--num_processes N]   (BUILD: of x86-64)
set -euo pipefail
cd "$(dirname "$0")/.."
build=build; [ "${1:-}" = "" ] || [ "${1#--}" != "$1" ] || { build=$1; shift; }
tools/deps_aarch64.sh --torch
tools/build.sh aarch64 build-aarch64-torch -DTESSERA_TORCH=ON -DTESSERA_TESTS=OFF -DTESSERA_EXAMPLES=OFF \
  tessera_program tessera_tool
out=out/aarch64-parity
rm -rf "$out"; mkdir -p "$out/model"
cat > "$out/model/config.json" << 'CONFIG'
{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 512, "n_positions": 64, "n_embd": 32,
 "n_layer": 2, "n_head": 2, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
CONFIG
cat docs/architecture.md > "$out/text.txt"
arguments=(train --config_name "$out/model" --tokenizer_name byte --train_file "$out/text.txt" --block_size 32
           --per_device_train_batch_size 4 --learning_rate 1e-3 --max_steps 10 --logging_steps 1 --report_to none
           --threads_per_process 1 "$@")
"$build/tessera" "${arguments[@]}" --output_dir "$out/x86_64" > "$out/x86_64.log" 2>&1 ||
  { cat "$out/x86_64.log"; exit 1; }
# A processor without SVE, because the emulator is slow with SVE's longer vectors.
QEMU_CPU=cortex-a72 tools/aarch64_run.sh build-aarch64-torch/tessera "${arguments[@]}" --output_dir "$out/aarch64" \
  > "$out/aarch64.log" 2>&1 || { cat "$out/aarch64.log"; exit 1; }
python3 - "$out" << 'PYTHON'
import json, sys
def losses(machine):
    lines = [json.loads(line) for line in open(f"{sys.argv[1]}/{machine}/metrics.jsonl")]
    return [line["loss"] for line in lines if "step" in line and "loss" in line]
ours, theirs = losses("x86_64"), losses("aarch64")
for step, (a, b) in enumerate(zip(ours, theirs), 1):
    print(f"step {step:2d}: x86-64 {a:.8f}, aarch64 {b:.8f}, difference {abs(a - b):.1e}")
worst = max(abs(a - b) for a, b in zip(ours, theirs))
print(f"largest difference {worst:.1e} (bar: 1e-6)")
sys.exit(len(ours) != 10 or len(theirs) != 10 or not worst <= 1e-6)
PYTHON
