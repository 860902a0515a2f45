#pragma once
/// \file
/// A mixture of experts as a layer for any module, in one process or with its experts on several ranks:
///
///   tessera::Experts moe{tessera::ExpertsOptions{.hidden = 512, .intermediate = 1024, .experts = 8, .top_k = 2,
///                                                .group = groups.of(Axis::ep)}};
///   register_module("moe", moe.ptr());
///   ...
///   x = x + moe->forward(norm(x));
///   loss = cross_entropy + 0.01 * moe->balancing_loss();

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <tessera/comm/group.h>
#include <tessera/nn/moe/experts.h>
#include <tessera/nn/moe/router.h>

#include <cstdint>
#include <vector>

namespace tessera {

struct ExpertsOptions {
  std::int64_t hidden = 0, intermediate = 0;  ///< C; F, of one expert
  std::int64_t experts = 0, top_k = 0;        ///< E; experts per token
  bool normalize = true;                      ///< the weights of a token's experts add up to 1
  /// The ranks among which own_experts() divides the experts; empty: this process has all of them.
  comm::Group group = {};
};

/// sum over a token's top_k experts e of weight_e * W_down_e (silu(W_gate_e x) * (W_up_e x)), with weights from a
/// softmax over all experts. Parameters: "gate.weight" [E, C] and, for this rank's experts by their global numbers,
/// "experts.3.gate_proj.weight" [F, C], "experts.3.up_proj.weight" [F, C], "experts.3.down_proj.weight" [C, F]. They
/// are initialised as torch::nn::Linear: all ranks draw all experts in one order and keep their own, so the same seed
/// gives the same layer on any number of ranks.
class ExpertsImpl : public torch::nn::Module {
 public:
  /// Throws InputError for invalid sizes, and for experts that the ranks do not divide.
  explicit ExpertsImpl(ExpertsOptions options);
  /// x [..., C] -> [..., C]. With a group it is collective, and so is its backward; a rank may have no tokens.
  at::Tensor forward(const at::Tensor& x);
  /// E sum_i f_i P_i of the last forward pass in grad mode (nn::switch_loss), over this rank's tokens: about 1 if the
  /// load is even. Differentiable; throws InputError before the first such pass.
  at::Tensor balancing_loss() const;
  /// Slots of this rank's tokens that the last pass sent to each expert: int64 [E].
  const at::Tensor& slots_per_expert() const { return slots_per_expert_; }
  const ExpertsOptions& options() const { return options_; }

 private:
  ExpertsOptions options_;
  at::Tensor router_, slots_per_expert_;
  nn::ExpertWeights weights_;
  nn::ExpertsFunction compute_;
  nn::Routing last_;
};
TORCH_MODULE(Experts);

}  // namespace tessera
