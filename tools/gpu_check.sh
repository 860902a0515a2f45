#!/bin/bash
# `make gpu-check`, for a machine with an NVIDIA GPU, CUDA 13 with NCCL, a compiler and a network: builds with the CUDA
# plug-in, packs (tools/gpu_pack.py) and checks the pack (tools/gpu_check.py). LibTorch's CUDA libraries (2 GB) come
# from PyPI into .deps/torch; the CPU build does not need them. A machine without compiler or network uses a pack that
# was made elsewhere (`make gpu-pack`): python3 PACK/gpu_check.py.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v nvidia-smi > /dev/null || { echo "gpu-check: no NVIDIA driver on this machine (nvidia-smi not found)" >&2
  exit 2; }
nvidia-smi --query-gpu=name,memory.total --format=csv,noheader
# libtorch_cuda.so needs NVIDIA's libraries in exactly the versions that the wheel requires; installed next to it,
# where its RPATH points
if [ ! -e .deps/torch/.cuda ]; then
  python3 -m pip install -q --no-compile --root-user-action=ignore --target .deps/torch \
    'cuda-toolkit[cublas,cudart,cufft,cufile,cupti,curand,cusolver,cusparse,nvjitlink,nvrtc,nvtx]==13.0.2' \
    nvidia-cudnn-cu13==9.19.0.56 \
    nvidia-cusparselt-cu13==0.8.0 nvidia-nccl-cu13==2.28.9 nvidia-nvshmem-cu13==3.4.5
  touch .deps/torch/.cuda
fi
tools/build.sh default build -DTESSERA_CUDA=ON
python3 tools/gpu_pack.py build out/gpu-pack
mkdir -p out/gpu-check
TESSERA_TORCH_LIB=$PWD/.deps/torch/torch/lib OUT=$PWD/out/gpu-check python3 out/gpu-pack/gpu_check.py out/gpu-pack
