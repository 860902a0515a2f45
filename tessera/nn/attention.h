#pragma once
/// \file
/// Causal self-attention over a packed query-key-value tensor.

#include <ATen/core/Tensor.h>

namespace tessera::nn {

/// softmax(q k^T * scale + causal mask) v, per head. qkv [B, T, 3 C] holds all queries, then keys, then values (GPT-2's
/// c_attn); head h of C = heads * D is columns [h D, (h+1) D). Returns [B, T, C]. `dropout` applies to the attention
/// weights (0: none).
at::Tensor causal_attention(const at::Tensor& qkv, std::int64_t heads, double scale, double dropout = 0);

/// The same where the T queries continue keys and values [B, heads, P + T, D] (generation; not differentiated).
/// q [B, heads, T, D]. Returns [B, T, C].
at::Tensor cached_attention(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values, double scale);

}  // namespace tessera::nn
