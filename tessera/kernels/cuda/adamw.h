#pragma once
/// \file
/// kernels/cuda/: raw-pointer kernels for NVIDIA GPUs, compiled by nvcc into the plug-in. This header: AdamW over a
/// range.

#include <tessera/kernels/cpu/adamw.h>

#include <cstdint>

namespace tessera::kernels::cuda {

/// kernels::adamw (kernels/cpu/adamw.h: the formula and its source) on device pointers, in the order of `stream` (a
/// cudaStream_t); returns before it is done. Throws std::runtime_error with CUDA's words when the launch fails.
void adamw(float* p, const float* g, float* m, float* v, std::int64_t n, const AdamwArgs& args, void* stream);

}  // namespace tessera::kernels::cuda
