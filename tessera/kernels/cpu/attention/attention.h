#pragma once
/// \file
/// kernels/cpu/attention/: attention and the small products it consists of.
///
/// This header: attention of one head without materializing its matrix of scores (Dao et al. 2022, FlashAttention:
/// tiles of scores, a running maximum and sum; the backward recomputes them from the logarithm of the sums).

#include <cstdint>

namespace tessera::kernels {

/// One head: token t's query is at q + t * q_stride, its key and value at k + t * k_stride and v + t * v_stride, each
/// of `size` elements, a multiple of 16. If `causal` (with equal numbers of keys and queries), query t attends to keys
/// 0 ... t, or, with a window, to the last `window` of these; otherwise it attends to all keys. Scores are scale * q .
/// k.
struct AttentionHead {
  const float *q, *k, *v;
  std::int64_t q_stride, k_stride, v_stride, queries, keys, size;
  float scale;
  bool causal;
  std::int64_t window = 0;  ///< with `causal`; 0: none
};

/// Queries per tile; a range of queries must begin at a multiple of this.
inline constexpr std::int64_t attention_tile = 64;
/// Floats of scratch memory for either function, aligned to 64 bytes. The backward needs more: the keys, the queries
/// and dout of a tile twice each (also transposed), its dq, two tiles of scores, two numbers per query.
constexpr std::int64_t attention_scratch(std::int64_t keys, std::int64_t size) {
  return keys * size + 5 * size * attention_tile + 2 * attention_tile * attention_tile + 4 * attention_tile;
}

/// Computes queries [first, end). The result of each query does not depend on where the range is cut:
///   out[t] = sum_j p_tj v_j with p_tj = exp(s_tj - log_sums[t]), log_sums[t] = ln(sum_j exp(s_tj))
/// Query t's result is at out + t * out_stride; log_sums has one number per query.
void attention(const AttentionHead& a, std::int64_t first, std::int64_t end, float* out, std::int64_t out_stride,
               float* log_sums, float* scratch);

/// The results of forward, and the gradients computed from the gradient of its output. All are laid out like q, k and
/// v.
struct AttentionGradients {
  const float *out, *dout;
  std::int64_t out_stride, dout_stride;
  const float* log_sums;
  float *dq, *dk, *dv;  ///< overwritten
  std::int64_t dq_stride, dk_stride, dv_stride;
};
void attention_backward(const AttentionHead& a, const AttentionGradients& g, float* scratch);

}  // namespace tessera::kernels
