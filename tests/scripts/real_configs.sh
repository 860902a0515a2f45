# tools/real_configs.py finds configurations of every kind, and tells what is accepted from what is not built.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder"/{accelerate,DeepSpeed,Megatron-LM,Qwen,trl}
cat > "$folder/accelerate/fsdp.yaml" <<'X'
distributed_type: FSDP
mixed_precision: bf16
num_machines: 1
num_processes: 4
fsdp_config:
  fsdp_sharding_strategy: FULL_SHARD
X
cat > "$folder/DeepSpeed/good.json" <<'X'
{"train_batch_size": 16, "train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2},
 "fp16": {"enabled": true},
 "optimizer": {"type": "Adam", "params": {"lr": 0.001, "betas": [0.8, 0.99], "bias_correction": false}},
 "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}}}
X
echo '{"train_batch_size": 1, "optimizer": {"type": "Muon"}}' > "$folder/DeepSpeed/not_built.json"
echo '{"train_batch_size": 1, "zero_optimization": {"stge": 1}, "steps_per_print": 1}' > "$folder/DeepSpeed/wrong.json"
for size in 1 2; do
  cat > "$folder/Megatron-LM/tp$size.yaml" <<X
MODEL_ARGS:
  --num-layers: 2
  --hidden-size: 64
  --num-attention-heads: 4
  --micro-batch-size: 1
  --global-batch-size: 8
  --seq-length: 32
  --train-iters: 5
  --lr: 1e-4
  --data-path: \${DATA_PATH}/pile
  --tensor-model-parallel-size: $size
X
done
cat > "$folder/Qwen/finetune.sh" <<'X'
MODEL="Qwen/Qwen-7B"
torchrun --nproc_per_node 2 finetune.py \
  --model_name_or_path $MODEL \
  --data_path ${DATA:-data.json} \
  --output_dir out --bf16 True \
  --learning_rate 1e-5
X
cat > "$folder/trl/recipe.yaml" <<'X'
model_name_or_path: some/model
dataset_name: some/data
learning_rate: 1e-4
use_peft: true
X
out=$(python3 tools/real_configs.py "$folder" "$1/tessera")
row=$(grep '^all   ' <<< "$out" | head -1 | tr -s ' ')
[ "$row" = "all 8 6 1 1 85.7%" ] && ! grep MEANS <<< "$out" || { echo "$out"; exit 1; }
