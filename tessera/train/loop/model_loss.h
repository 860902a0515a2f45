#pragma once
/// \file
/// The default objective: the model's own loss over the scored tokens.

#include <tessera/train/features/objective.h>
#include <tessera/train/loop/setup.h>

namespace tessera::train {

class ModelLoss : public Objective {
 public:
  /// `setup` outlives it.
  explicit ModelLoss(const Setup& setup) : setup_(setup) {}

  data::Batch arranged_idle(data::Batch rows) const override;
  at::Tensor loss(const data::Batch& batch, double scale) override { return setup_.model->loss(batch, scale); }
  at::Tensor trial_loss(const data::Batch& batch) override { return setup_.model->loss(batch, 0); }
  std::optional<EvalMetrics> evaluate(const Evaluating& how) override;

 private:
  const Setup& setup_;
};

}  // namespace tessera::train
