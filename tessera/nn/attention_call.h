#pragma once
/// \file
/// Self-attention of a model that holds a part of every sequence: what it must know of the whole, and the function that
/// computes it. Models call it without knowing which ranks hold the rest.

#include <ATen/core/Tensor.h>

#include <tessera/nn/attention.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace tessera::nn {

/// The parameters of one attention call, besides its tensors.
struct AttentionCall {
  std::int64_t length = 0;                 ///< tokens T of a whole row
  DocumentStarts documents = {};           ///< starts in whole rows
  std::vector<std::int64_t> lengths = {};  ///< non-padding tokens of each row; empty: all T
  bool causal = true;                      ///< no token attends to a later one
  AttentionOptions options = {};           ///< scale, window, soft cap etc.
};

/// q [B, t, heads, D]; k, v [B, t, key heads, D]: t of the T tokens of each row. Returns [B, t, heads * D], where each
/// token has attended to its share of the whole row.
using AttentionFunction =
    std::function<at::Tensor(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionCall& call)>;

}  // namespace tessera::nn
