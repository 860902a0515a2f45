#pragma once
/// \file
/// Rotary frequencies, as transformers/modeling_rope_utils.py computes them (architectures/rope.h reads their values).

#include <ATen/core/Tensor.h>

#include <tessera/architectures/rope.h>
#include <cstdint>

namespace tessera::models {

/// fp32 [D/2]. `sequence`: tokens of the longest sequence at hand; dynamic scaling and longrope look at it.
at::Tensor inverse_frequencies(const architectures::Rope& rope, std::int64_t sequence);

}  // namespace tessera::models
