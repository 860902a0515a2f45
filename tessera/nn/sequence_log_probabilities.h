#pragma once
/// \file
/// How probable a language model finds the scored tokens of each row, for losses that compare rows (preferences).

#include <ATen/core/Tensor.h>

namespace tessera::nn {

/// For each row b the sum over t < T-1 with labels[b, t+1] != -100 of log softmax(hidden[b, t] weight^T)[labels[b,
/// t+1]], as a double [B] with gradients. hidden [B, T, C], weight [V, C], labels int64 [B, T] on the same device.
/// `softcap`: the logits are soft-capped at it (softcap.h); 0: they are not. `bias` [V] is added to them; it may be
/// undefined. Logits exist for a chunk of scored tokens at a time, and are formed again in backward, since what a row's
/// gradient is multiplied by is known only when all rows are through. A row without a scored token has 0.
at::Tensor sequence_log_probabilities(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                                      double softcap = 0, const at::Tensor& bias = {});

}  // namespace tessera::nn
