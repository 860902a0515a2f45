#!/bin/bash
# `make train`: trains a small GPT-2 on the King James Bible with two processes that divide parameters, gradients and
# optimizer states between them (FULL_SHARD), in about three minutes on two cores.
# All output is under out/: the text and its tokenizer in out/data, the run (model, metrics, report) in out/train.
#
#   tools/train_demo.sh [BUILD_FOLDER]        environment: TESSERA_DEMO_OUT, _STEPS, _PROCESSES, _FSDP, _MODEL (config
#   overrides), _VOCAB, ...
set -euo pipefail
build=$(cd "${1:-build}" && pwd)
cd "$(dirname "$0")/.."
out=${TESSERA_DEMO_OUT:-out}
steps=${TESSERA_DEMO_STEPS:-400}
processes=${TESSERA_DEMO_PROCESSES:-2}
fsdp=${TESSERA_DEMO_FSDP:-full_shard auto_wrap}   # no_shard: plain data parallelism
vocabulary=${TESSERA_DEMO_VOCAB:-8192}
block=${TESSERA_DEMO_BLOCK:-128}
rows=${TESSERA_DEMO_ROWS:-4}                  # per process
model=${TESSERA_DEMO_MODEL:-n_layer=6,n_embd=320,n_head=5}
kilobytes=${TESSERA_DEMO_KILOBYTES:-}         # only the beginning of the text: for quick checks
prompt=${TESSERA_DEMO_PROMPT:-"And it came to pass,"}
mkdir -p "$out/data"
text=$out/data/kjv.txt

before=
[ ! -e "$text" ] || before=$(cksum < "$text")
tools/demo_text.sh "$text" "$kilobytes"
[ "$(cksum < "$text")" = "$before" ] || rm -rf "$out/data/tokenizer-$vocabulary"

tokenizer=$out/data/tokenizer-$vocabulary
if [ ! -e "$tokenizer/tokenizer.json" ]; then
  "$build/tessera" tokenizer train --train_file "$text" --vocab_size "$vocabulary" --output "$tokenizer"
fi

"$build/tessera" train \
  --config_name gpt2-tiny --config_overrides "$model,vocab_size=$vocabulary,n_positions=256" \
  --tokenizer_name "$tokenizer" \
  --train_file "$text" --validation_split_percentage 1 --block_size "$block" \
  --num_processes "$processes" --fsdp "$fsdp" --per_device_train_batch_size "$rows" \
  --per_device_eval_batch_size "$rows" --max_steps "$steps" \
  --learning_rate 1e-3 --lr_scheduler_type cosine --warmup_ratio 0.1 --weight_decay 0.1 --adam_beta2 0.98 \
  --logging_steps 5 --eval_strategy steps --eval_steps "$(((steps + 2) / 3))" --save_strategy epoch \
  --output_dir "$out/train" \
  --overwrite_output_dir

echo
echo "sample:"
"$build/tessera" generate --model_name_or_path "$out/train" --prompt "$prompt" --max_new_tokens 120 --temperature 0.8 \
  --top_p 0.95 --seed 1
echo
echo "model:  $out/train"
echo "report: $out/train/report.html"
