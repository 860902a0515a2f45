#pragma once
/// \file
/// Rotary frequencies, following transformers/modeling_rope_utils.py (architectures/rope.h reads their parameters).

#include <ATen/core/Tensor.h>

#include <tessera/architectures/rope.h>
#include <cstdint>

namespace tessera::models {

/// fp32 [D/2]. `sequence`: tokens of the longest current sequence; used by dynamic scaling and longrope.
at::Tensor inverse_frequencies(const architectures::Rope& rope, std::int64_t sequence);

}  // namespace tessera::models
