#pragma once
/// \file
/// Attention with weights dropped by position (dropout.h) and scores that may be soft-capped (softcap.h): y =
/// dropout(softmax(softcap(q k^T scale) + mask)) v. The weights of query t and all keys of its row form a line: the
/// random number of a weight is a function of (pass, row, head, query, key), so parts of a row on several ranks drop
/// the same weights. Computed in runs of queries: no matrix of all queries and keys is kept.

#include <ATen/core/Tensor.h>

#include <tessera/nn/dropout.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace tessera::nn {

/// Dropout of attention weights, by position.
struct WeightDropout {
  double p = 0;            ///< 0: nothing is dropped
  RandomPlace place = {};  ///< position of the queries: their first row and head; `column` is not used
};

/// A rectangle of queries and keys. q [B, heads, n, D]; k, v [B, heads, m, D].
struct AttentionRectangle {
  at::Tensor q, k, v;    ///< all have one type
  at::Tensor mask = {};  ///< added to the scores; broadcasts to [B, heads, n, m]; undefined: no mask
  bool causal = false;   ///< n = m, and query i attends to keys 0 .. i
  double scale = 1;      ///< factor of q k^T
  double softcap = 0;    ///< caps the scores, before the mask (softcap.h); 0: no cap
  // For flash_attention() only; the functions here use masks instead.
  std::int64_t window = 0;  ///< causal: a query attends to itself and window - 1 tokens before it; 0: all
  std::vector<std::int64_t> lengths =
      {};  ///< not causal: number of leading keys of each row that are attended to; empty: all
};
/// The position of a rectangle in its rows: its lines (queries) and columns (keys).
struct RectanglePlace {
  std::int64_t row = 0;                 ///< the rectangle's first row, counted from the RandomPlace's row
  std::int64_t query = 0;               ///< index of the first query, as RandomPlace::token counts
  std::vector<std::int64_t> keys = {};  ///< the position of each key; empty: 0, 1, 2, ...
};

/// {out [B, heads, n, D] of q's type, log-sum-exp of the scores [B, heads, n]}, as flash kernels return them; sums in
/// fp32, or fp64 for fp64. Each query must attend to at least one key.
std::pair<at::Tensor, at::Tensor> rectangle_attention(const AttentionRectangle& a, const WeightDropout& dropout,
                                                      const RectanglePlace& place);

/// The gradients of one rectangle of queries and keys.
struct RectangleGradients {
  at::Tensor dq, dk, dv;  ///< gradients of q, k and v, in their shapes
};
/// The gradients, given the gradient dy of out. out and log_sum are over *all* keys that the queries attend to, of
/// which `a` may contain a part.
RectangleGradients rectangle_attention_backward(const at::Tensor& dy, const AttentionRectangle& a,
                                                const at::Tensor& out, const at::Tensor& log_sum,
                                                const WeightDropout& dropout, const RectanglePlace& place);

/// Attention of one rectangle, differentiable; under autocast in its type, like scaled_dot_product_attention. Returns
/// [B, heads, n, D].
at::Tensor dropout_attention(const AttentionRectangle& a, const WeightDropout& dropout);

}  // namespace tessera::nn
