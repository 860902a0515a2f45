#pragma once
/// \file
/// Log probabilities that a language model assigns to the scored tokens of each row, for losses that compare rows
/// (preferences).

#include <ATen/core/Tensor.h>

namespace tessera::nn {

/// For each row b the sum over t < T-1 with labels[b, t+1] != -100 of log softmax(hidden[b, t] weight^T)[labels[b,
/// t+1]], as a double [B] with gradients. hidden [B, T, C], weight [V, C], labels int64 [B, T] on the same device.
/// `softcap`: the logits are soft-capped at it (softcap.h); 0: no cap. `bias` [V] is added to them; it may be
/// undefined. Logits exist for one chunk of scored tokens at a time and are computed again in backward, since the
/// factor of a row's gradient is only known after all rows. A row without a scored token has 0.
at::Tensor sequence_log_probabilities(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                                      double softcap = 0, const at::Tensor& bias = {});

}  // namespace tessera::nn
