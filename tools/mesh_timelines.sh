#!/usr/bin/env bash
# Generates the pictures of docs/parallelism.md: a step of a small Llama on four meshes, drawn from recorded timelines.
#   tools/mesh_timelines.sh BUILD_FOLDER IMAGE_FOLDER
set -euo pipefail
build=$(realpath "$1") images=$(realpath "$2") here=$(dirname "$(realpath "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for i in $(seq 1 3000); do echo "the $((i % 7)) small stones of row $((i % 11)) form a mosaic."; done > "$work/text.txt"

model=num_hidden_layers=2,hidden_size=256,num_attention_heads=4,num_key_value_heads=4,head_dim=64
model+=,intermediate_size=512,vocab_size=257,max_position_embeddings=256

draw() {  # NAME RANKS TITLE FLAGS...
  local name=$1 ranks=$2 title=$3
  shift 3
  OMP_NUM_THREADS=1 "$build/tessera" launch --num_processes "$ranks" -- "$build/tessera" train \
    --config_name llama-tiny --config_overrides "$model" --tokenizer_name byte \
    --train_file "$work/text.txt" --block_size 256 \
    --per_device_train_batch_size 2 --max_steps 12 --logging_steps 100 --save_strategy no --report_to none --profile \
    --output_dir "$work/$name" "$@" > "$work/$name.log" 2>&1 ||
    { cat "$work/$name.log"; exit 1; }
  "$here/timeline_svg.py" "$work/$name/trace.json" --title "$title" > "$images/timeline_$name.svg"
  echo "$images/timeline_$name.svg"
}

draw tp2 2 "--tp_size 2" --tp_size 2
draw tp2_sp 2 "--tp_size 2 --sequence_parallel" --tp_size 2 --sequence_parallel
draw cp2 2 "--cp_size 2 (the ring)" --cp_size 2
draw fsdp2_tp2 4 "--tp_size 2 --fsdp full_shard: 2 x 2" --tp_size 2 --fsdp "full_shard auto_wrap"
draw fsdp2 2 "--fsdp full_shard" --fsdp "full_shard auto_wrap"
draw pp2 2 "--pp_size 2 --gradient_accumulation_steps 4 (1f1b)" --pp_size 2 --gradient_accumulation_steps 4 \
  --per_device_train_batch_size 1
draw ep2 2 "--ep_size 2 (Mixtral, eight experts)" --ep_size 2 --config_name mixtral-tiny
