# MLflow's own Python interface reads the store that `tessera train --report_to mlflow` has written.
#
#   PEERS=VENV tests/scripts/trackers.sh [BUILD_FOLDER]     VENV: a Python environment with mlflow (or
#   mlflow-skinny); else skipped (exit status 77)
set -euo pipefail
python=${PEERS:-/nonexistent}/bin/python
have() { "$python" -c "import mlflow" 2> /dev/null; }
have || { echo "skipped: no mlflow; PEERS names a Python environment with it"; exit 77; }
build=$(cd "${1:-build}" && pwd)
out=$(mktemp -d); trap 'rm -rf "$out"' EXIT
cd "$out"
for i in $(seq 200); do echo "line $i says that seven and five are twelve"; done > text.txt
train() {
  "$build/tessera" train --config_name gpt2-tiny --tokenizer_name bytes \
    --config_overrides n_embd=32,n_layer=2,n_head=2,vocab_size=257,n_positions=64,bos_token_id=256,eos_token_id=256 \
    --train_file text.txt --validation_split_percentage 20 --block_size 32 \
    --per_device_train_batch_size 2 --logging_steps 1 --eval_strategy steps --eval_steps 2 --save_steps 2 \
    --run_name "the run: 1" --report_to mlflow,csv --output_dir run "$@" > train.txt 2>&1 || { cat train.txt; exit 1; }
}
export MLFLOW_TRACKING_URI=file:$out/store MLFLOW_EXPERIMENT_NAME=mine MLFLOW_TAGS='{"release": "RC1"}'
export MLFLOW_ALLOW_FILE_STORE=true  # MLflow 3 asks for it
train --max_steps 4
train --max_steps 6 --resume_from_checkpoint last
cat > read.py << 'PY'
import csv, json, mlflow

client = mlflow.MlflowClient()
experiment = client.get_experiment_by_name("mine")
runs = client.search_runs([experiment.experiment_id])
assert len(runs) == 1, runs
run = runs[0]
assert run.info.run_id == open("run/mlflow_run_id").read().strip()
assert (run.info.status, run.info.run_name) == ("FINISHED", "the run: 1"), run.info
assert run.data.tags["release"] == "RC1" and run.data.params["n_layer"] == "2", run.data
assert float(run.data.params["learning_rate"]) > 0
logged = [json.loads(line) for line in open("run/metrics.jsonl")]
losses = {line["step"]: line["loss"] for line in logged if "loss" in line and "learning_rate" in line}
history = client.get_metric_history(run.info.run_id, "loss")
assert [point.step for point in history] == [1, 2, 3, 4, 5, 6], history
assert all(abs(point.value - losses[point.step]) < 1e-6 for point in history), (history, losses)
assert [point.step for point in client.get_metric_history(run.info.run_id, "eval_loss")] == [2, 4, 6]
rows = [row for row in csv.DictReader(open("run/metrics.csv")) if row["loss"]]
assert [int(row["step"]) for row in rows] == [1, 2, 3, 4, 5, 6]
assert all(abs(float(row["loss"]) - losses[int(row["step"])]) < 1e-6 for row in rows)
# What MLflow writes into it afterwards, it reads again, and so does a further training.
client.set_tag(run.info.run_id, "note", "good")
client.log_metric(run.info.run_id, "score", 0.5, step=6)
print(f"MLflow {mlflow.__version__} reads the run: {len(run.data.metrics)} metrics, {len(run.data.params)} parameters")
PY
"$python" read.py 2> read.txt || { cat read.txt; exit 1; }
train --max_steps 7 --resume_from_checkpoint last
"$python" -c "
import mlflow
run = mlflow.MlflowClient().get_run(open('run/mlflow_run_id').read().strip())
assert run.data.tags['note'] == 'good' and run.data.metrics['score'] == 0.5, run.data
" 2> read.txt || { cat read.txt; exit 1; }
