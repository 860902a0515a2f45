#pragma once
/// \file
/// Rounds an optimizer's state to bfloat16, in one pass.

#include <tessera/kernels/cpu/bf16_rounding.h>

#include <cstdint>

namespace tessera::kernels::cuda {

/// to[i] = from[i], rounded as kernels/cpu/bf16_rounding.h says, n elements on the device. An element has 32 random
/// bits: a first or only state (which = 0) takes the upper half, a second one (which = 1) the lower. In the order of
/// `stream` (a cudaStream_t); returns before it is done. Throws std::runtime_error with CUDA's words when a launch
/// fails.
void round_to_bf16(const float* from, std::uint16_t* to, std::int64_t n, const Bf16Rounding& rounding, int which,
                   void* stream);

}  // namespace tessera::kernels::cuda
