#pragma once
/// \file
/// Self-attention of encoders: every token attends to all tokens of its row.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace tessera::nn {

/// softmax(scale q k^T) v per head. q, k, v [B, T, heads, D]. lengths: row b attends to its first lengths[b] tokens, 1
/// to T of them (the rest is padding and costs nothing); empty: all. Returns [B, T, heads * D], also at padding. Throws
/// Error for other shapes and lengths.
at::Tensor two_way_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const std::vector<std::int64_t>& lengths, double scale);

}  // namespace tessera::nn
