#pragma once
/// \file
/// Balancing without a loss: assigns equally many tokens to each expert (Clark et al. 2022, "Unified Scaling Laws for
/// Routed Language Models", section 3.1, S-BASE; Megatron-LM's load balancing "sinkhorn").

#include <ATen/core/Tensor.h>

namespace tessera::nn {

/// Scores [N, E] by which tokens choose, in fp64: exp(logits), with rows and columns scaled in turn until every token
/// sums to 1/N and every expert to 1/E (Sinkhorn & Knopp 1967). Stops when the mean change of the columns' factors is
/// at most `tolerance`, or after 1000 rounds. logits [N, E]; not differentiable.
at::Tensor sinkhorn(const at::Tensor& logits, double tolerance = 1e-4);

}  // namespace tessera::nn
