#pragma once
/// \file
/// Self-attention of a model that holds a part of every sequence: what it must know of the whole, and the function that
/// computes it. Models call it without knowing who holds the rest.

#include <ATen/core/Tensor.h>

#include <tessera/nn/attention.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace tessera::nn {

/// One call of attention: what is asked of it, beside its tensors.
struct AttentionCall {
  std::int64_t length = 0;                 ///< tokens T of a whole row
  DocumentStarts documents = {};           ///< starts in whole rows
  std::vector<std::int64_t> lengths = {};  ///< tokens of each row that are no padding; empty: all T
  bool causal = true;                      ///< no token sees a later one
  AttentionOptions options = {};           ///< scale, window, soft cap and the like
};

/// q [B, t, heads, D]; k, v [B, t, key heads, D]: t of the T tokens of each row. Returns [B, t, heads * D], each token
/// having seen what it sees of the whole row.
using AttentionFunction =
    std::function<at::Tensor(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionCall& call)>;

}  // namespace tessera::nn
