#pragma once
/// \file
/// A mixture of experts that replaces a block's MLP: each token is processed by a few of `experts` MLPs, chosen by a
/// router, and in some families also by a shared one. They are gated or (Megatron's) not.

#include <tessera/models/mlp.h>
#include <tessera/nn/moe/experts.h>

#include <memory>
#include <vector>

namespace tessera::models {

/// The router: weight [E, C], and e_score_correction_bias [E], which only affects the choice and is not trained.
struct Router : torch::nn::Module {
  Router(std::int64_t experts, std::int64_t hidden, bool with_bias);
  at::Tensor weight, e_score_correction_bias;
};

/// One expert's matrices: [I, C], [I, C], [C, I]; `gate` is null for experts without gates. Tables, not linear maps:
/// the layer computes all experts at once.
struct Expert : torch::nn::Module {
  explicit Expert(const architectures::ModelSpec& spec);
  std::shared_ptr<Table> gate, up, down;
};

struct MoeMlp : Mlp {
  MoeMlp(const architectures::ModelSpec& spec, std::int64_t index);
  at::Tensor forward(const at::Tensor& x, const ForwardContext& context) override;
  const at::Tensor& first_weight() const override { return gate->weight; }
  /// Drops all experts except first .. first + count - 1.
  void keep_experts(std::int64_t first, std::int64_t count);
  /// The weights of this process's experts.
  nn::ExpertWeights weights() const;

  std::shared_ptr<Router> gate;
  std::vector<std::shared_ptr<Expert>> experts;  ///< null: on another process
  std::shared_ptr<Mlp> shared_expert;            ///< a GatedMlp or a PlainMlp; null: none
  std::shared_ptr<Linear> shared_expert_gate;    ///< [1, C]; null: none
  nn::RouterOptions options;
  nn::Activation activation;  ///< activation of experts without gates
  std::int64_t index;
  double jitter;
};

}  // namespace tessera::models
