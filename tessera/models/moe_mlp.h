#pragma once
/// \file
/// A mixture of experts in the place of a block's MLP: of `experts` MLPs each token sees the few that a router
/// chooses, and beside them, in some families, one that sees every token. They have gates, or (Megatron's) none.

#include <tessera/models/mlp.h>
#include <tessera/nn/moe/experts.h>

#include <memory>
#include <vector>

namespace tessera::models {

/// The router: weight [E, C], and e_score_correction_bias [E], which counts in choosing only and is not trained.
struct Router : torch::nn::Module {
  Router(std::int64_t experts, std::int64_t hidden, bool with_bias);
  at::Tensor weight, e_score_correction_bias;
};

/// One expert's matrices: [I, C], [I, C], [C, I]; `gate` is null where experts have none. Tables, not linear maps: the
/// layer computes all experts at once.
struct Expert : torch::nn::Module {
  explicit Expert(const architectures::ModelSpec& spec);
  std::shared_ptr<Table> gate, up, down;
};

struct MoeMlp : Mlp {
  MoeMlp(const architectures::ModelSpec& spec, std::int64_t index);
  at::Tensor forward(const at::Tensor& x, const ForwardContext& context) override;
  const at::Tensor& first_weight() const override { return gate->weight; }
  /// Lets go of all experts but those numbered first .. first + count - 1.
  void keep_experts(std::int64_t first, std::int64_t count);
  /// What of the experts is here.
  nn::ExpertWeights weights() const;

  std::shared_ptr<Router> gate;
  std::vector<std::shared_ptr<Expert>> experts;  ///< null: another process has it
  std::shared_ptr<Mlp> shared_expert;            ///< a GatedMlp or a PlainMlp; null: none
  std::shared_ptr<Linear> shared_expert_gate;    ///< [1, C]; null: none
  nn::RouterOptions options;
  nn::Activation activation;  ///< the experts', where they have no gates
  std::int64_t index;
  double jitter;
};

}  // namespace tessera::models
