#!/usr/bin/env bash
# The transport through shared memory under AddressSanitizer and UndefinedBehaviorSanitizer: its tests need no tensors,
# so neither LibTorch nor the kernels of other layers are in the way. Ranks are threads here, each with mappings of its
# own.
#
#   tests/comm/sanitize.sh [FOLDER]   what is built stays there (default: build-sanitize)
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:-build-sanitize}
mkdir -p "$folder"
sources=(tests/comm/{shm_work_queue,shm_accumulate,arena}_test.cpp tessera/launch/watch/record.cpp
         tessera/base/{error,free_ranges,log,text,utf8}.cpp
  tessera/kernels/cpu/*.cpp)
for source in tessera/comm/shm/*.cpp; do
  [[ $source == */backend.cpp ]] || sources+=("$source")  # the only one that sees tensors
done
flags=(-std=c++20 -O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined -I.)
compiler=(${CXX:-g++})
command -v ccache > /dev/null && compiler=(ccache "${compiler[@]}")
objects=()
for source in "${sources[@]}"; do
  object=$folder/${source//\//_}.o
  objects+=("$object")
  extra=()
  [[ $source == *_avx2.cpp ]] && extra=(-mavx2 -mfma -mf16c)
  [[ $source == *_avx512.cpp ]] && extra=(-mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c)
  "${compiler[@]}" "${flags[@]}" "${extra[@]}" -c "$source" -o "$object"
done
"${compiler[@]: -1}" -fsanitize=address,undefined "${objects[@]}" -lgtest -lgtest_main -lrapidcheck -lpthread \
  -o "$folder/shm_tests"
exec "$folder/shm_tests" --gtest_brief=1
