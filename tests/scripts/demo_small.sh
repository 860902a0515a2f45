# The main job, `make train`, at small scale: two processes, real text, its own tokenizer, a sample and a final report.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$(mktemp -d); trap 'rm -rf "$out"' EXIT
TESSERA_DEMO_OUT=$out TESSERA_DEMO_STEPS=30 TESSERA_DEMO_KILOBYTES=200 TESSERA_DEMO_VOCAB=512 TESSERA_DEMO_BLOCK=64 \
  TESSERA_DEMO_MODEL=n_layer=2,n_embd=64,n_head=2 tools/train_demo.sh "$1"
for f in config.json model.safetensors tokenizer.json metrics.jsonl report.html; do
  [ -s "$out/train/$f" ] || { echo "$f is missing or empty"; exit 1; }
done
python3 - "$out/train/metrics.jsonl" <<'PY'
import json, sys
lines = [json.loads(l) for l in open(sys.argv[1])]
losses = [l["loss"] for l in lines if "event" not in l]
assert lines[-1]["event"] == "end" and lines[-1]["steps"] == 30, lines[-1]
assert losses[-1] < losses[0] - 0.5, losses
PY
