#pragma once
/// \file
/// nn/moe/: mixture of experts (Shazeer et al. 2017; Fedus et al. 2022, "Switch Transformers"): which experts see a
/// token (router.h), what keeps their load even (balance.h) or within a bound (capacity.h), and what they compute
/// (permute.h, grouped.h, experts.h). N tokens, C hidden size, E experts, k of them per token.
///
/// This header: the router. It computes in fp32 (in fp64 where its input is fp64), whatever autocast says, because a
/// choice among experts should not hang on the last bit of a bf16 number.

#include <ATen/core/Tensor.h>

#include <tessera/nn/dropout.h>

#include <cstdint>

namespace tessera::nn {

/// How logits become chosen experts and their weights, in this order:
///   scores s = softmax(logits) over all experts, or sigmoid(logits), or (softmax_after_top_k) the logits themselves;
///   with groups > 1 only experts of the `top_groups` best of `groups` equal groups of consecutive experts stay; a
///   group is as good as the sum of its `group_best` best scores (DeepSeek-V2: the best one; DeepSeek-V3: two);
///   the k best scores are chosen; a selection bias is added to scores for choosing only (Wang et al. 2024);
///   weights are the chosen scores, with softmax_after_top_k their softmax; `normalize`: divided by their sum;
///   times `scale`.
struct RouterOptions {
  enum class Scoring { softmax, sigmoid };  ///< what makes scores of logits
  std::int64_t experts = 0, top_k = 0;      ///< E and k
  Scoring scoring = Scoring::softmax;       ///< what makes scores of logits
  bool softmax_after_top_k = false;         ///< weights are the softmax of the k chosen logits
  bool normalize = false;                   ///< weights are divided by their sum
  bool sinkhorn = false;  ///< in training tokens choose by sinkhorn.h's scores instead; weights stay what they are
  std::int64_t groups = 1, top_groups = 1, group_best = 2;  ///< groups 1: any expert may be chosen
  double scale = 1;                                         ///< factor of the weights, at the end
};

/// Where tokens go.
struct Routing {
  at::Tensor ids;            ///< int64 [N, k]: experts, best first; -1: dropped (capacity.h), its weight is 0 then
  at::Tensor weights;        ///< [N, k], differentiable
  at::Tensor probabilities;  ///< [N, E], differentiable: scores of all experts that add up to 1, for balance.h
  at::Tensor logits;         ///< [N, E], differentiable
  bool complete = false;     ///< no id is -1: a device need not be asked how many rows there are
  /// > 0: every expert is given as many rows of these tokens, this number, or that of the tokens where it is smaller;
  /// rows of zeros stand for those that nobody sends (capacity.h).
  std::int64_t padded_to = 0;
};

/// x W^T: x [..., C], weight [E, C]. Returns [N, E].
at::Tensor router_logits(const at::Tensor& x, const at::Tensor& weight);

/// logits [N, E]; selection_bias [E], or undefined. `choose_by` [N, E], if defined, stands in place of the scores where
/// experts are chosen. Throws Error for options that contradict themselves.
Routing route(const at::Tensor& logits, const RouterOptions& options, const at::Tensor& selection_bias = {},
              const at::Tensor& choose_by = {});

/// x [B, t, C] times Uniform(1 - amount, 1 + amount), keyed by place (Switch Transformers' input jitter).
at::Tensor jittered(const at::Tensor& x, double amount, const RandomPlace& place);

}  // namespace tessera::nn
