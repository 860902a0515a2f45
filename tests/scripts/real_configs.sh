# tools/real_configs.py finds configurations of every kind and separates accepted, unsupported and foreign ones.
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
echo '{"bf16": true, "fp16": false, "gradient_accumulation_steps": 2}' > "$folder/DeepSpeed/arguments.json"
mkdir "$folder/somebody+own"
cat > "$folder/somebody+own/train.sh" <<'X'
LAYERS=$((8 / (2 * 2)))
run() { python train_it.py --learning_rate 1e-4 --max_steps $1 --logging_steps 1 --save_steps 5; }
python train_it.py --our_rate 1 --our_batch 2 --our_model m --our_data d
python train_tokenizer.py --learning_rate 1 --max_steps 1 --logging_steps 1 --save_steps 5
python train_it.py --learning_rate 1e-4 --max_steps $[6/2] --logging_steps $LAYERS --save_steps 5
X
out=$(python3 tools/real_configs.py "$folder" "$1/tessera")
row=$(grep '^all ' <<< "$out" | tr -s ' ')
# columns: accepted, without model and data, not built, private words, unreadable, another program's, refused by all,
# refused
[ "$row" = "all 12/6 6 1 1 1 1 1 0 1 85.7%" ] && ! grep MEANS <<< "$out" || { echo "$out"; exit 1; }
out=$(python3 tools/real_configs.py "$folder" "$1/tessera" --only recipe --sample 1 2)
grep -q 'learning_rate .* = 1e-04' <<< "$out" || { echo "$out"; exit 1; }

# shell arithmetic, and files that are not DeepSpeed's
PYTHONPATH=tools python3 - "$folder" <<'X'
import sys
from real_configs import kind_of
from shell_lines import UNREAD, arithmetic, expand
sums = {"128/8/4": 4, "-7 / 2": -3, "7 % -4": 3, "2*(3+4) // 5": 2, "1+": None, "1/0": None, "2**9": None, "f(1)": None}
assert {text: arithmetic(text) for text in sums} == sums
values = {"A": "$B", "B": "64", "C": "4"}
texts = {"$(($A / (B * C)))": "0", "$[$A/C/1]": "16", "${D:-${B}}": "64", "$1": UNREAD, "$((X + 1))": UNREAD,
         "$RANDOM": UNREAD, "$(date)": UNREAD, "$NNODES": "1", "$(())": UNREAD}
assert {text: expand(text, values) for text in texts} == texts, {text: expand(text, values) for text in texts}
kinds = {"DeepSpeed/good.json": "DeepSpeed", "DeepSpeed/arguments.json": None, "trl/recipe.yaml": "recipe",
         "accelerate/fsdp.yaml": "accelerate", "Megatron-LM/tp1.yaml": "Megatron", "Qwen/finetune.sh": "command line"}
assert {name: kind_of(f"{sys.argv[1]}/{name}") for name in kinds} == kinds
X
