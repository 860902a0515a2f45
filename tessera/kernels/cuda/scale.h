#pragma once
/// \file
/// Multiplies elements by a factor that only the device knows. The factor is usually 1, and then nothing is read or
/// written.

#include <tessera/kernels/cuda/reals.h>

#include <cstdint>

namespace tessera::kernels::cuda {

/// x[i] *= *factor for i < n, in fp32, unless *factor is 1. Returns before the work is done, on `stream` (a
/// cudaStream_t); throws std::runtime_error with CUDA's message when the launch fails.
void multiply_unless_one(Reals x, const float* factor, std::int64_t n, void* stream);

}  // namespace tessera::kernels::cuda
