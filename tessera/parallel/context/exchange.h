#pragma once
/// \file
/// Exchanges tokens for heads (Ulysses, Jacobs et al. 2023): `a` ranks with t tokens of all heads each get a t tokens
/// of 1 / a of the heads, and back.

#include <ATen/core/Tensor.h>

#include <tessera/comm/group.h>

namespace tessera::parallel {

struct QueriesKeysValues {
  at::Tensor q, k, v;
};
/// Each [B, t, heads, D] -> [B, a t, heads / a, D]: tokens in rank order, rank r has heads [r heads / a, ...). All in
/// one all-to-all; a must divide each number of heads. Differentiable; forward and backward are collective over the
/// group.
QueriesKeysValues tokens_for_heads(const QueriesKeysValues& tensors, const comm::Group& group);
/// The inverse: [B, a t, heads / a, D] -> [B, t, heads, D].
at::Tensor heads_for_tokens(const at::Tensor& x, const comm::Group& group);

}  // namespace tessera::parallel
