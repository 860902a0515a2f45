#pragma once
/// \file
/// kernels/cpu/attention/: attention and the small products that it is made of.
///
/// This header: attention of one head without its matrix of scores in memory (Dao et al. 2022, FlashAttention: tiles of
/// scores, a running maximum and sum; the backward forms them again from the logarithm of the sums).

#include <cstdint>

namespace tessera::kernels {

/// One head: token t's query is at q + t * q_stride, its key and value at k + t * k_stride and v + t * v_stride, each
/// of `size` numbers, a multiple of 16. Query t sees keys 0 ... t where `causal` (as many keys as queries then), with a
/// window the last `window` of these; else all. Scores are scale * q . k.
struct AttentionHead {
  const float *q, *k, *v;
  std::int64_t q_stride, k_stride, v_stride, queries, keys, size;
  float scale;
  bool causal;
  std::int64_t window = 0;  ///< with `causal`; 0: none
};

/// Queries of a tile: a range of queries begins at a multiple of it.
inline constexpr std::int64_t attention_tile = 64;
/// Floats of scratch memory that the two functions need, aligned to 64 bytes. The backward needs more: the keys, the
/// queries and dout of a tile twice each (transposed, too), its dq, two tiles of scores, two numbers per query.
constexpr std::int64_t attention_scratch(std::int64_t keys, std::int64_t size) {
  return keys * size + 5 * size * attention_tile + 2 * attention_tile * attention_tile + 4 * attention_tile;
}

/// Queries [first, end), of which each is computed alike wherever the range is cut:
///   out[t] = sum_j p_tj v_j with p_tj = exp(s_tj - log_sums[t]), log_sums[t] = ln(sum_j exp(s_tj))
/// Query t's result is at out + t * out_stride; log_sums has one number per query.
void attention(const AttentionHead& a, std::int64_t first, std::int64_t end, float* out, std::int64_t out_stride,
               float* log_sums, float* scratch);

/// What the forward gave and what follows from the gradient of its result; all are laid out as q, k and v.
struct AttentionGradients {
  const float *out, *dout;
  std::int64_t out_stride, dout_stride;
  const float* log_sums;
  float *dq, *dk, *dv;  ///< overwritten
  std::int64_t dq_stride, dk_stride, dv_stride;
};
void attention_backward(const AttentionHead& a, const AttentionGradients& g, float* scratch);

}  // namespace tessera::kernels
