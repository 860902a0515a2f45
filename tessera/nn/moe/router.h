#pragma once
/// \file
/// nn/moe/: mixture of experts (Shazeer et al. 2017; Fedus et al. 2022, "Switch Transformers"): the choice of experts
/// for a token (router.h), measures that keep their load even (balance.h) or within a bound (capacity.h), and their
/// computation (permute.h, grouped.h, experts.h). N tokens, C hidden size, E experts, k of them per token.
///
/// This header: the router. It computes in fp32 (in fp64 if its input is fp64), regardless of autocast, because a
/// choice among experts should not depend on the last bit of a bf16 number.

#include <ATen/core/Tensor.h>

#include <tessera/nn/dropout.h>

#include <cstdint>

namespace tessera::nn {

/// How logits are turned into chosen experts and their weights, in this order:
///   scores s = softmax(logits) over all experts, or sigmoid(logits), or (softmax_after_top_k) the logits themselves;
///   with groups > 1 only experts of the `top_groups` best of `groups` equal groups of consecutive experts are kept; a
///   group's score is the sum of its `group_best` best scores (DeepSeek-V2: the best one; DeepSeek-V3: two);
///   the k best scores are chosen; a selection bias is added to scores for choosing only (Wang et al. 2024);
///   weights are the chosen scores, with softmax_after_top_k their softmax; `normalize`: divided by their sum;
///   times `scale`.
struct RouterOptions {
  enum class Scoring { softmax, sigmoid };  ///< the function from logits to scores
  std::int64_t experts = 0, top_k = 0;      ///< E and k
  Scoring scoring = Scoring::softmax;       ///< the function from logits to scores
  bool softmax_after_top_k = false;         ///< weights are the softmax of the k chosen logits
  bool normalize = false;                   ///< weights are divided by their sum
  bool sinkhorn = false;  ///< in training experts are chosen by sinkhorn.h's scores instead; weights are unchanged
  std::int64_t groups = 1, top_groups = 1, group_best = 2;  ///< groups 1: no restriction
  double scale = 1;                                         ///< factor of the final weights
};

/// The result of the router.
struct Routing {
  at::Tensor ids;            ///< int64 [N, k]: experts, best first; -1: dropped (capacity.h), with weight 0
  at::Tensor weights;        ///< [N, k], differentiable
  at::Tensor probabilities;  ///< [N, E], differentiable: scores of all experts that add up to 1, for balance.h
  at::Tensor logits;         ///< [N, E], differentiable
  bool complete = false;     ///< no id is -1, so the number of rows is known without waiting for the device
  /// > 0: every expert gets min(padded_to, number of tokens) rows of these tokens, filled up with rows of zeros
  /// (capacity.h).
  std::int64_t padded_to = 0;
};

/// x W^T: x [..., C], weight [E, C]. Returns [N, E].
at::Tensor router_logits(const at::Tensor& x, const at::Tensor& weight);

/// logits [N, E]; selection_bias [E], or undefined. `choose_by` [N, E], if defined, replaces the scores in the choice
/// of experts. Throws Error for contradictory options.
Routing route(const at::Tensor& logits, const RouterOptions& options, const at::Tensor& selection_bias = {},
              const at::Tensor& choose_by = {});

/// x [B, t, C] times Uniform(1 - amount, 1 + amount), keyed by position (Switch Transformers' input jitter).
at::Tensor jittered(const at::Tensor& x, double amount, const RandomPlace& place);

}  // namespace tessera::nn
