#pragma once
/// \file
/// Keeps the load of experts even: auxiliary losses, and a selection bias that needs no loss.
/// N tokens, E experts, k per token; counts c_i: slots that chose expert i; P_i: mean probability of expert i.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace tessera::nn {

/// Sums numbers over the processes that hold other tokens of the same batch; empty: no other processes.
using SumOver = std::function<at::Tensor(const at::Tensor&)>;

/// c: int64 [E] of ids [..., k]. `mask` bool [...]: tokens to count; undefined: all. An id of -1 is not counted.
at::Tensor expert_counts(const at::Tensor& ids, std::int64_t experts, const at::Tensor& mask = {});

/// transformers' load_balancing_loss_func: E sum_i (c_i / N) P_i, with counts and probabilities over all layers
/// together. `probabilities`: [N, E] of each layer, `ids` [N, k] of each. `mask` bool [N]: tokens to count.
at::Tensor load_balancing_loss(const std::vector<at::Tensor>& probabilities, const std::vector<at::Tensor>& ids,
                               const at::Tensor& mask = {});

/// The loss of Switch Transformers (Fedus et al. 2022, eq. 4) for k experts per token, as in Megatron-LM: E sum_i f_i
/// P_i, f_i = c_i / (N k), of one layer. probabilities [N, E], ids [N, k]. `sum` sums f over processes: it receives [E
/// + 1] numbers, the counts and N k. P is of the local tokens, so the mean of the processes' losses is the loss of all
/// their tokens if each process has equally many.
at::Tensor switch_loss(const at::Tensor& probabilities, const at::Tensor& ids, const SumOver& sum = {});
/// The same for given counts [E] of `slots` slots (for example of a whole global batch).
at::Tensor switch_loss(const at::Tensor& probabilities, const at::Tensor& counts, double slots);
/// The mean over sequences of each one's switch_loss (DeepSeek-V3's "sequence-wise" loss). probabilities [B, T, E], ids
/// [B, T, k].
at::Tensor sequence_loss(const at::Tensor& probabilities, const at::Tensor& ids);

/// mean over tokens of logsumexp(logits)^2 (Zoph et al. 2022, "ST-MoE", eq. 5). logits [N, E].
at::Tensor z_loss(const at::Tensor& logits);

/// Balancing without a loss (Wang et al. 2024): bias [E] increases by `rate` for experts with less than the mean load
/// and decreases by it for those with more. counts [E] are first summed over processes by `sum`.
void update_bias(at::Tensor bias, const at::Tensor& counts, double rate, const SumOver& sum = {});

/// Identity on x; in backward `loss` (a scalar) gets `scale` as its gradient. Adds a loss to a sum that is computed
/// elsewhere, for example in the last stage of a pipeline.
at::Tensor with_loss(const at::Tensor& x, const at::Tensor& loss, double scale);

}  // namespace tessera::nn
