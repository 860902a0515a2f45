#!/bin/bash
# `make gpu-check`, for a machine with an NVIDIA GPU and CUDA 13 with NCCL: builds with the plug-in, runs the tests,
# trains briefly on the GPU. LibTorch's CUDA libraries (2 GB) come from PyPI into .deps/torch; the CPU build does
# without them.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v nvidia-smi > /dev/null || { echo "gpu-check: no NVIDIA driver on this machine (nvidia-smi not found)" >&2
  exit 2; }
nvidia-smi --query-gpu=name,memory.total --format=csv,noheader
# libtorch_cuda.so needs NVIDIA's libraries of exactly the versions that the wheel names; installed beside it, where its
# RPATH looks
if [ ! -e .deps/torch/.cuda ]; then
  python3 -m pip install -q --no-compile --root-user-action=ignore --target .deps/torch \
    'cuda-toolkit[cublas,cudart,cufft,cufile,cupti,curand,cusolver,cusparse,nvjitlink,nvrtc,nvtx]==13.0.2' \
    nvidia-cudnn-cu13==9.19.0.56 \
    nvidia-cusparselt-cu13==0.8.0 nvidia-nccl-cu13==2.28.9 nvidia-nvshmem-cu13==3.4.5
  touch .deps/torch/.cuda
fi
tools/build.sh default build -DTESSERA_CUDA=ON
export LD_LIBRARY_PATH=$(find "$PWD/.deps/torch/nvidia" /usr/local/cuda -maxdepth 3 -type d -name 'lib*' 2>/dev/null |
  paste -sd:)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
python3 tests/run_tests.py build
out=out/gpu-check; rm -rf $out; mkdir -p $out
bible -p /usr/lib/ -f gen1:1-rev22:21 < /dev/null > $out/text.txt 2> /dev/null ||
  cat docs/*.md README.md > $out/text.txt
build/tessera train --device cuda --config_name gpt2-tiny --tokenizer_name byte --train_file $out/text.txt \
  --block_size 256 \
  --per_device_train_batch_size 16 --learning_rate 1e-3 --max_steps 100 --logging_steps 10 --output_dir $out/run
tail -n 2 $out/run/metrics.jsonl
