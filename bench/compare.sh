#!/bin/bash
# `make bench`: speed against PyTorch on this machine. Installs the peers (PyTorch, transformers, accelerate) once into
# .deps/peers with the scripts of ../shared/peers, then runs them interleaved with Tessera. With --llama first: the bars
# of the Llama family (bench/llama.py).
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1; shift
peers=${TESSERA_PEERS:-../shared/peers}
venv=${TESSERA_PEERS_VENV:-.deps/peers}
[ -f "$peers/train_peer.py" ] || { echo "no peers at $peers (set TESSERA_PEERS): nothing to compare with" >&2; exit 2; }
if [ ! -f "$venv/.ready" ]; then
  echo "installing the peers into $venv (0.6 GB)"
  WITH_HF=1 bash "$peers/setup_min.sh" "$venv"
  "$venv/bin/pip" install -q --no-compile --no-deps accelerate psutil
  touch "$venv/.ready"
fi
if [ "${1:-}" = --llama ]; then
  shift
  exec "$venv/bin/python" bench/llama.py --build "$build" --venv "$venv" "$@"
fi
exec "$venv/bin/python" bench/compare.py --build "$build" --peers "$peers" --venv "$venv" "$@"
