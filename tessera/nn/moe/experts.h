#pragma once
/// \file
/// The experts of one layer: MLPs, each applied to the tokens that the router assigned to it.

#include <ATen/core/Tensor.h>

#include <tessera/nn/activation.h>
#include <tessera/nn/moe/permute.h>
#include <tessera/nn/moe/router.h>
#include <tessera/nn/moe/source_gradients.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace tessera::nn {

/// The experts that this process holds: numbers first, first + 1, ... of `total`. up [F, C], down [C, F] each; gate [F,
/// C]: silu(gate x) multiplies up x; without gates: `activation` is applied between up and down.
struct ExpertWeights {
  std::vector<at::Tensor> gate, up, down;        ///< one tensor per local expert
  std::int64_t first = 0, total = 0;             ///< number of the first local expert, and of all experts
  Activation activation = Activation::gelu_erf;  ///< between up and down, without a gate

  std::int64_t held() const { return static_cast<std::int64_t>(up.size()); }  ///< number of local experts
};

/// The experts' results for rows sorted by expert. x [R, C]; counts int64 [held] on the CPU, adding up to R, or their
/// ends on a device (grouped.h). Returns [R, C]. With `per_source`, counts are [S, held]: rows of S sources, kept
/// separate (grouped.h).
at::Tensor experts_of_rows(const at::Tensor& x, const at::Tensor& counts, const ExpertWeights& weights,
                           const c10::intrusive_ptr<SourceGradients>& per_source = {});

/// The experts' results for the rows of permute(x, permutation), x [N, C]. `weights` must contain all experts. Returns
/// [R, C].
at::Tensor experts_of_permuted(const at::Tensor& x, const Permutation& permutation, const ExpertWeights& weights);

/// Computes the part of the layer that does not depend on its experts (the shared expert). Called once; if rows are
/// sent to other processes, while they are in flight. Empty: nothing to do.
using Meanwhile = std::function<void()>;

/// sum over j of routing.weights[n, j] * expert(routing.ids[n, j])(x[n]): x [N, C] -> [N, C]. All experts must be local
/// and whole; otherwise it throws Error, since an ExpertsFunction is then needed for the other processes.
at::Tensor experts(const at::Tensor& x, const Routing& routing, const ExpertWeights& weights,
                   const Meanwhile& meanwhile = {});

/// The same, by an implementation that knows where the other experts are. Called once per layer and pass, in the same
/// order on every process that shares experts, even if a process has no tokens (N = 0). Runs again when activations are
/// recomputed.
using ExpertsFunction = std::function<at::Tensor(const at::Tensor& x, const Routing& routing,
                                                 const ExpertWeights& weights, const Meanwhile& meanwhile)>;

}  // namespace tessera::nn
