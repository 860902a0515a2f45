#pragma once
/// \file
/// Token plus position embedding.

#include <ATen/core/Tensor.h>

namespace tessera::nn {

/// out[b, t] = tokens[ids[b, t]] + positions[first_position + t]. ids int64 [B, T]; tokens [V, C]; positions [P, C].
/// Returns [B, T, C]. An id outside [0, V) or a position >= P throws Error.
at::Tensor embed(const at::Tensor& ids, const at::Tensor& tokens, const at::Tensor& positions,
                 std::int64_t first_position = 0);

}  // namespace tessera::nn
