#!/bin/bash
# Creates the peers' environment: PyTorch's wheel without NVIDIA's 2.1 GB (replaced by cuda_stubs.py, so it works only
# on CPUs), transformers and accelerate.
#
#   bench/peers/setup.sh VENV [WHEELS]      WHEELS: a folder that may contain wheels already
set -euo pipefail
venv=$1 links=${2:+--find-links $2}
here=$(cd "$(dirname "$0")" && pwd)
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
pip() { "$venv/bin/pip" install -q --no-compile "$@"; }
pip --no-deps $links torch==2.11.0 typing_extensions sympy mpmath numpy
pip transformers safetensors tokenizers filelock jinja2 fsspec networkx
pip --no-deps accelerate psutil
lib=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["platlib"])')/torch/lib
"$venv/bin/python" "$here/cuda_stubs.py" "$lib"
"$venv/bin/python" -W ignore -c 'import torch; assert not torch.cuda.is_available(); print("torch", torch.__version__)'
