# accelerate as the launcher: its file's settings reach our ranks through its variables and take effect.
#
#   PEERS=VENV tests/launchers/accelerate.sh [BUILD_FOLDER]     VENV: a Python environment with accelerate; else skipped
#   (status 77)
set -euo pipefail
python=${PEERS:-/nonexistent}/bin/python
[ -x "${PEERS:-/nonexistent}/bin/accelerate" ] ||
  { echo "skipped: no accelerate; PEERS names a Python environment with it"; exit 77; }
fixtures=$(cd "$(dirname "$0")/../fixtures/accelerate" && pwd)
build=$(cd "${1:-build}" && pwd)
out=$(mktemp -d); trap 'rm -rf "$out"' EXIT
cd "$out"
export HF_HOME=$out OMP_NUM_THREADS=1
for i in $(seq 300); do echo "the $((i % 7)) small stones of row $((i % 11)) form a mosaic."; done > text.txt
training() {  # OUTPUT_DIR [more]: two layers on bytes, three steps
  local dir=$1; shift
  local shape=n_layer=2,n_embd=32,n_head=2,vocab_size=257,n_positions=64,bos_token_id=256,eos_token_id=256
  echo train --config_name gpt2-tiny --config_overrides $shape \
    --tokenizer_name byte --train_file text.txt --block_size 32 --learning_rate 1e-2 --lr_scheduler_type constant \
    --logging_steps 1 --max_steps 3 \
    --per_device_train_batch_size 2 --save_strategy no --output_dir "$dir" "$@"
}
accelerate() { timeout 120 "$python" -m accelerate.commands.launch --main_process_port 0 --no_python \
  --config_file "$fixtures/$1.yaml" "$build/tessera" "${@:2}"; }
origin() { "$python" -c '
import json, sys
s = json.load(open(sys.argv[1]))["sharding"][sys.argv[2]]
print(s["value"], "|", s["origin"])' "$@"; }

accelerate fsdp1 $(training unused) --print_config | sed -n "/^{/,\$p" > fsdp1.json
[ "$(origin fsdp1.json strategy)" = "shard_grad_op | environment FSDP_RESHARD_AFTER_FORWARD" ]
[ "$(origin fsdp1.json min_num_params)" = "2000 | environment FSDP_MIN_NUM_PARAMS" ]
[ "$(origin fsdp1.json backward_prefetch)" = "backward_post | environment FSDP_BACKWARD_PREFETCH" ]
accelerate hybrid $(training unused) --print_config | sed -n "/^{/,\$p" > hybrid.json
[ "$(origin hybrid.json strategy)" = "hybrid_shard | environment PARALLELISM_CONFIG_DP_REPLICATE_SIZE" ]
accelerate deepspeed_fields $(training unused) --print_config |
  sed -n "/^{/,\$p" > deepspeed.json  # DeepSpeed prints before we do
[ "$(origin deepspeed.json zero_stage)" = "3 | environment ACCELERATE_DEEPSPEED_ZERO_STAGE" ]
[ "$(origin deepspeed.json cpu_offload)" = "optimizer | environment ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE" ]

# The same file through both launchers gives identical losses.
accelerate fsdp2 $(training theirs) > theirs.log 2>&1 || { cat theirs.log; exit 1; }
timeout 120 "$build/tessera" launch --config_file "$fixtures/fsdp2.yaml" \
  "$build/tessera" $(training ours) > ours.log 2>&1 ||
  { cat ours.log; exit 1; }
losses() { "$python" -c '
import json, sys
print([json.loads(l)["loss"] for l in open(sys.argv[1]) if "\"loss\"" in l and "event" not in l])' "$1/metrics.jsonl"; }
echo "theirs $(losses theirs), ours $(losses ours)"
[ "$(losses theirs)" = "$(losses ours)" ]
