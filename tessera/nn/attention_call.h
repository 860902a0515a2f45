#pragma once
/// \file
/// Self-attention of a model that holds a part of every sequence: the facts about the whole sequence that it needs, and
/// the function that computes it. Models call it without knowing which ranks hold the rest.

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
  bool causal = true;                      ///< no token attends to a later token
  AttentionOptions options = {};           ///< scale, window, soft cap etc.
};

/// q [B, t, heads, D]; k, v [B, t, key heads, D]: t of the T tokens of each row. Returns [B, t, heads * D], where each
/// token has attended to the whole row, as `call` permits.
using AttentionFunction =
    std::function<at::Tensor(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionCall& call)>;

}  // namespace tessera::nn
