#pragma once
/// \file
/// The experts of one layer: MLPs, of which each token sees those that the router chose.

#include <ATen/core/Tensor.h>

#include <tessera/nn/activation.h>
#include <tessera/nn/moe/permute.h>
#include <tessera/nn/moe/router.h>
#include <tessera/nn/moe/source_gradients.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace tessera::nn {

/// The experts that this process holds: those numbered first, first + 1, ... of `total`. up [F, C], down [C, F] each;
/// gate [F, C]: silu(gate x) multiplies up x; none of them: `activation` stands between up and down.
struct ExpertWeights {
  std::vector<at::Tensor> gate, up, down;        ///< one tensor for each expert that is here
  std::int64_t first = 0, total = 0;             ///< the first that is here, and the number of all
  Activation activation = Activation::gelu_erf;  ///< between up and down, where there is no gate

  std::int64_t held() const { return static_cast<std::int64_t>(up.size()); }  ///< how many experts are here
};

/// What experts give for rows that lie expert by expert. x [R, C]; counts int64 [held] on the CPU, adding up to R, or
/// their ends on a device (grouped.h). Returns [R, C]. With `per_source`, counts are [S, held]: rows of S sources, kept
/// apart (grouped.h).
at::Tensor experts_of_rows(const at::Tensor& x, const at::Tensor& counts, const ExpertWeights& weights,
                           const c10::intrusive_ptr<SourceGradients>& per_source = {});

/// What the experts, all of `weights`, give for the rows that permute() makes of x [N, C]. Returns [R, C].
at::Tensor experts_of_permuted(const at::Tensor& x, const Permutation& permutation, const ExpertWeights& weights);

/// What of the layer does not depend on its experts (the shared expert): it is called once, while rows are on their way
/// to other processes, where they travel. Empty: nothing.
using Meanwhile = std::function<void()>;

/// sum over j of routing.weights[n, j] * expert(routing.ids[n, j])(x[n]): x [N, C] -> [N, C]. All experts must be here
/// and whole; otherwise it throws Error, since somebody must say what the other processes do (an ExpertsFunction).
at::Tensor experts(const at::Tensor& x, const Routing& routing, const ExpertWeights& weights,
                   const Meanwhile& meanwhile = {});

/// The same, computed by whoever knows where the other experts are. Called once per layer and pass, on every process of
/// those that share experts in the same order, also where a process has no tokens (N = 0). Runs again when activations
/// are recomputed.
using ExpertsFunction = std::function<at::Tensor(const at::Tensor& x, const Routing& routing,
                                                 const ExpertWeights& weights, const Meanwhile& meanwhile)>;

}  // namespace tessera::nn
