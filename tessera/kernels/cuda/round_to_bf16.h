#pragma once
/// \file
/// Rounds an optimizer's state to bfloat16, in one pass.

#include <tessera/kernels/cpu/bf16_rounding.h>

#include <cstdint>

namespace tessera::kernels::cuda {

/// to[i] = from[i], rounded as specified in kernels/cpu/bf16_rounding.h, n elements on the device. An element has 32
/// random bits: a first or only state (which = 0) uses the upper half, a second state (which = 1) the lower half. Runs
/// on `stream` (a cudaStream_t); returns before the work is done. Throws std::runtime_error with CUDA's message when a
/// launch fails.
void round_to_bf16(const float* from, std::uint16_t* to, std::int64_t n, const Bf16Rounding& rounding, int which,
                   void* stream);

}  // namespace tessera::kernels::cuda
