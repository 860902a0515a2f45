#pragma once
/// \file
/// train/core/: what `tessera train` and the faces (DeepSpeed, Accelerate, Hugging Face's Trainer) have in common, each
/// thing once. This header: a step, from the backward passes of its micro-batches to changed weights.
///
///   core.zero_grad();
///   for (...) {                                  // micro-batches
///     core.expect_step(is_the_last);             // before its forward: whether its backward reduces gradients
///     core.backward(loss * core.loss_factor());
///   }
///   const double norm = core.clip(1.0);
///   if (core.step()) core.step_schedule();       // false: skipped, fp16 gradients overflowed

#include <torch/nn/module.h>

#include <tessera/checkpoint/run_state.h>
#include <tessera/nn/device/send.h>
#include <tessera/optim/loss_scale.h>
#include <tessera/parallel/fully_shard.h>
#include <tessera/train/core/rates.h>
#include <tessera/train/core/update.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace tessera {
struct RunConfig;
}

namespace tessera::train {

/// Collective where Sharded's functions are. Not thread-safe.
class StepCore {
 public:
  /// First of all: divides the module over the ranks of options.group. `loss_scale`: of fp16.
  Sharded& divide(std::shared_ptr<torch::nn::Module> module, ShardingOptions options,
                  const std::optional<optim::LossScale>& loss_scale);
  /// Before the first step.
  void set_update(std::unique_ptr<Update> update) { update_ = std::move(update); }

  torch::nn::Module& module() { return *module_; }  ///< after divide()
  Sharded& sharded() { return *sharded_; }          ///< after divide()
  Update& update() { return *update_; }             ///< after set_update()

  optim::LossScale* loss_scale() const { return loss_scale_.get(); }  ///< nullptr: not in fp16
  /// From now on both follow one loss scale, that of `other`: every step of either adapts it (Accelerate has one scaler
  /// for all optimizers). Whoever takes a step then calls rescale_gradients() of the others if the scale has changed.
  void share_loss_scale(const StepCore& other) { loss_scale_ = other.loss_scale_; }
  /// Gradients that are already here follow a loss scale that has become `factor` times what it was.
  void rescale_gradients(double factor);
  std::int64_t skipped_steps() const { return loss_scale_ ? loss_scale_->state().skipped_steps : 0; }

  /// Whether the next backward is the last of its step; others keep their gradients here where the strategy allows it
  /// (Sharded::NoSync), unless gradients are summed in fixed order.
  void expect_step(bool is_last);
  /// Belongs into the loss of every micro-batch: the loss scale, or 1.
  double loss_factor() const { return loss_scale_ ? loss_scale_->scale() : 1.0; }
  /// `loss`: one element.
  void backward(const at::Tensor& loss);
  /// Another core's backward may have reached this one's module, too.
  void gradients_changed() { scaled_norm_.reset(); }

  /// The norm of the step's gradients over all ranks, without the loss scale. Computed once a step, and anew
  /// after clip_values().
  double gradient_norm();
  /// Gradients are to be scaled by min(1, max_norm / (norm + 1e-6)) in step(). Returns the norm before. With fp16 it
  /// may be infinite: the step will be skipped. Otherwise a norm that is not finite throws Error naming rank and
  /// parameter.
  double clip(double max_norm);
  /// The same with a norm of more gradients than these (of several modules together).
  void clip_by(double norm, double max_norm);
  /// Clamps every element of the gradients, without the loss scale and after clip(), to [-limit, limit]. With fp16
  /// collective, since gradients that overflow anywhere stay as they are, so that step() is skipped.
  void clip_values(double limit);
  /// Whether step_late() works: optimizer and device of every rank can do that, and there is no loss scale. Collective
  /// when it is asked for the first time on a device.
  bool steps_late();
  /// gradient_norm(), clip_by() and step() at once; the host waits for none of them. Returns the norm before clipping:
  /// if it turns out not to be finite, weights and states were left as they are, and forget_step() comes before the
  /// next step.
  nn::LateNumber step_late(double max_norm);
  void forget_step() { update_->forget_step(); }
  /// Updates the weights; false: skipped, since fp16 gradients overflowed (the loss scale has been lowered).
  bool step();
  /// Ends the step; instead of step() it is one without an update.
  void end_step();
  void zero_grad();  ///< lets go of all gradients

  /// Learning rates follow the schedule from now on, at once that of the steps taken so far. Empty: they stay as they
  /// are.
  void set_schedule(RateSchedule schedule);
  /// The same of one with parameters; reduce_lr_on_plateau follows evaluated(). `of_embeddings`: of all parameter
  /// groups but the first, where it is another.
  void set_schedule(const optim::Schedule& schedule, const std::optional<optim::Schedule>& of_embeddings = {});
  /// From now on learning rates are multiplied by factor(steps taken), too.
  void scale_rates(std::function<double(std::int64_t steps)> factor);
  /// One step on.
  void step_schedule() { set_schedule_steps(schedule_steps_ + 1); }
  std::int64_t schedule_steps() const { return schedule_steps_; }  ///< that it has taken
  void set_schedule_steps(std::int64_t steps);                     ///< learning rates become those of then
  /// False: the schedule moves betas, and the optimizer has none.
  bool moves_betas() const { return moves_betas_; }
  bool follows_evaluations() const { return schedule_.plateau != nullptr; }  ///< reduce_lr_on_plateau
  /// An evaluation's metric, the same number on every rank; nothing unless follows_evaluations().
  void evaluated(double metric);

  /// What a checkpoint keeps of the optimizer, the schedule and the loss scale, besides tensors.
  checkpoint::ModelState state() const;
  /// Puts that back, once the schedule is set, and the optimizer's tensors (Update::restore). Throws InputError for
  /// those of another model or optimizer.
  void restore(const checkpoint::ModelState& state, const std::string& folder,
               const std::shared_ptr<format::ReadSums>& sums = {}, const std::string& stem = "optimizer");
  /// The weights that are trained, the optimizer's tensors and what gradient compression remembers, as a checkpoint
  /// holds them. This object outlives the save.
  SavedModel saved_model() const;
  /// What a checkpoint says of its only, or first, model and of who writes it: seed, configuration, mesh.
  void write_to(checkpoint::RunState& state, const RunConfig& config) const;

 private:
  double gradient_factor() const { return loss_scale_ ? loss_scale_->gradient_factor() : 1.0; }

  std::shared_ptr<torch::nn::Module> module_;
  std::optional<Sharded> sharded_;
  std::unique_ptr<Update> update_;
  std::shared_ptr<optim::LossScale> loss_scale_;
  std::optional<Sharded::NoSync> pause_;
  std::optional<double> scaled_norm_;  // this step's
  double clip_ = 1;
  std::optional<bool> steps_late_;  // whether all ranks can; decided at the first step
  RateSchedule schedule_;
  std::int64_t schedule_steps_ = 0;
  std::function<double(std::int64_t)> rate_factor_;  // empty: 1
  bool moves_betas_ = true;
};

}  // namespace tessera::train
