#pragma once
/// \file
/// Token plus position embedding.

#include <ATen/core/Tensor.h>

#include <tessera/nn/documents.h>

namespace tessera::nn {

/// out[b, t] = tokens[ids[b, t]] + positions[p], p = first_position + t, or with documents the position in its
/// document. ids int64 [B, T]; tokens [V, C]; positions [P, C]. Returns [B, T, C]. An id outside [0, V) or a position
/// >= P throws Error.
at::Tensor embed(const at::Tensor& ids, const at::Tensor& tokens, const at::Tensor& positions,
                 std::int64_t first_position = 0, const DocumentStarts& documents = {});

/// The same at given places: int64 [T], of every row, or [B * T].
at::Tensor embed_at(const at::Tensor& ids, const at::Tensor& tokens, const at::Tensor& positions,
                    const at::Tensor& places);

}  // namespace tessera::nn
