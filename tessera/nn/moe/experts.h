#pragma once
/// \file
/// The experts of one layer: gated MLPs, of which each token sees those that the router chose.

#include <ATen/core/Tensor.h>

#include <tessera/nn/moe/router.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace tessera::nn {

/// The experts that this process holds: those numbered first, first + 1, ... of `total`. gate, up [F, C], down [C, F]
/// each.
struct ExpertWeights {
  std::vector<at::Tensor> gate, up, down;  ///< one tensor for each expert that is here
  std::int64_t first = 0, total = 0;       ///< the first that is here, and the number of all
};

/// sum over j of routing.weights[n, j] * expert(routing.ids[n, j])(x[n]): x [N, C] -> [N, C]. All experts must be here
/// and whole; otherwise it throws Error, since somebody must say what the other processes do (an ExpertsFunction).
at::Tensor experts(const at::Tensor& x, const Routing& routing, const ExpertWeights& weights);

/// The same, computed by whoever knows where the other experts are. Called once per layer and pass, on every process of
/// those that share experts in the same order, also where a process has no tokens (N = 0). Runs again when activations
/// are recomputed.
using ExpertsFunction =
    std::function<at::Tensor(const at::Tensor& x, const Routing& routing, const ExpertWeights& weights)>;

}  // namespace tessera::nn
