#!/bin/bash
# `make bench`: speed against PyTorch on this machine. Installs the peers (PyTorch, transformers, accelerate) once into
# .deps/peers (bench/peers/setup.sh), then runs bench/peers/train_peer.py interleaved with Tessera. With --llama as the
# first argument: the required ratios for the Llama family (bench/llama.py).
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1; shift
venv=${TESSERA_PEERS_VENV:-.deps/peers}
if [ ! -f "$venv/.ready" ]; then
  echo "installing the peers into $venv (0.6 GB)"
  bench/peers/setup.sh "$venv"
  touch "$venv/.ready"
fi
if [ "${1:-}" = --llama ]; then
  shift
  exec "$venv/bin/python" bench/llama.py --build "$build" --venv "$venv" "$@"
fi
exec "$venv/bin/python" bench/compare.py --build "$build" --venv "$venv" "$@"
