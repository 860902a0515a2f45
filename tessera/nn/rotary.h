#pragma once
/// \file
/// Rotary position embedding (Su et al. 2021) in Hugging Face's half-split layout.

#include <ATen/core/Tensor.h>

namespace tessera::nn {

/// The cosines and sines of a batch's positions: [T, D/2], the same for every row, or [B * T, D/2].
struct RotaryTable {
  at::Tensor cos, sin;
};
/// angle[t, i] = positions[t] * inverse_frequencies[i]; cos and sin times `scale` (yarn's attention factor).
/// positions int64 [N]; inverse_frequencies fp32 [D/2]. fp32, computed as transformers does (in fp32).
RotaryTable rotary_table(const at::Tensor& positions, const at::Tensor& inverse_frequencies, double scale);

/// Each head x = (a, b) of halves a, b becomes (a cos - b sin, b cos + a sin), with the angle of its token
/// (apply_rotary_pos_emb in transformers/models/llama/modeling_llama.py). x [B, T, heads, D]. The table is constant.
at::Tensor rotary(const at::Tensor& x, const RotaryTable& table);

}  // namespace tessera::nn
