#pragma once
/// \file
/// Tokens for heads (Ulysses, Jacobs et al. 2023): a ranks that hold t tokens of all heads each come to hold a t tokens
/// of 1 / a of the heads, and back.

#include <ATen/core/Tensor.h>

#include <tessera/comm/group.h>

namespace tessera::parallel {

struct QueriesKeysValues {
  at::Tensor q, k, v;
};
/// Each [B, t, heads, D] -> [B, a t, heads / a, D]: tokens in the order of the ranks, rank r has heads [r heads / a,
/// ...). All in one all-to-all; a divides each number of heads. Differentiable; collective over the group, backward
/// too.
QueriesKeysValues tokens_for_heads(const QueriesKeysValues& tensors, const comm::Group& group);
/// The way back: [B, a t, heads / a, D] -> [B, t, heads, D].
at::Tensor heads_for_tokens(const at::Tensor& x, const comm::Group& group);

}  // namespace tessera::parallel
