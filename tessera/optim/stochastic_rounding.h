#pragma once
/// \file
/// Rounding to bfloat16 as defined in kernels/cpu/bf16_rounding.h, for tensors on any device, and the keys of the
/// random bits.

#include <ATen/core/Tensor.h>

#include <tessera/kernels/cpu/bf16_rounding.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace tessera::optim {

/// The key of a parameter's random bits in a step.
std::uint64_t rounding_key(std::uint64_t seed, std::int64_t step, const std::string& parameter);

/// to = `from` (float32), rounded. An element has 32 random bits: a first or only state (which = 0) uses the upper
/// half, a second state (which = 1) the lower half.
void round_to_bf16(const at::Tensor& from, const at::Tensor& to, const kernels::Bf16Rounding& rounding, int which);

}  // namespace tessera::optim
