#pragma once
/// \file
/// train/core/: the code that `tessera train` and the faces (DeepSpeed, Accelerate, Hugging Face's Trainer) share. This
/// header: one step, from the backward passes of its micro-batches to updated weights.
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

/// Collective wherever Sharded's functions are. Not thread-safe.
class StepCore {
 public:
  /// Call first: divides the module over the ranks of options.group. `loss_scale`: for fp16.
  Sharded& divide(std::shared_ptr<torch::nn::Module> module, ShardingOptions options,
                  const std::optional<optim::LossScale>& loss_scale);
  /// Call before the first step.
  void set_update(std::unique_ptr<Update> update) { update_ = std::move(update); }

  torch::nn::Module& module() { return *module_; }  ///< after divide()
  Sharded& sharded() { return *sharded_; }          ///< after divide()
  Update& update() { return *update_; }             ///< after set_update()

  optim::LossScale* loss_scale() const { return loss_scale_.get(); }  ///< nullptr without fp16
  /// Shares the loss scale of `other`: every step of either core adapts it (Accelerate has one scaler for all
  /// optimizers). If a step has changed the scale, call rescale_gradients() on the others.
  void share_loss_scale(const StepCore& other) { loss_scale_ = other.loss_scale_; }
  /// Adjusts gradients already in memory to a loss scale that has changed by `factor`.
  void rescale_gradients(double factor);
  std::int64_t skipped_steps() const { return loss_scale_ ? loss_scale_->state().skipped_steps : 0; }

  /// Whether the next backward is the last of its step; gradients of earlier ones stay local where the strategy allows
  /// it (Sharded::NoSync), unless gradients are summed in fixed order.
  void expect_step(bool is_last);
  /// Factor for the loss of every micro-batch: the loss scale, or 1.
  double loss_factor() const { return loss_scale_ ? loss_scale_->scale() : 1.0; }
  /// `loss`: one element.
  void backward(const at::Tensor& loss);
  /// Call when another core's backward may have produced gradients in this core's module.
  void gradients_changed() { scaled_norm_.reset(); }

  /// The norm of the step's gradients over all ranks, without the loss scale. Computed once per step, and again after
  /// clip_values().
  double gradient_norm();
  /// Makes step() scale gradients by min(1, max_norm / (norm + 1e-6)). Returns the norm before clipping. With fp16 it
  /// may be infinite: the step will be skipped. Otherwise a norm that is not finite throws an Error that names the rank
  /// and the parameter.
  double clip(double max_norm);
  /// Same, with a norm that covers more gradients than these (several modules together).
  void clip_by(double norm, double max_norm);
  /// Clamps every gradient element, without the loss scale and after clip(), to [-limit, limit]. With fp16 this is
  /// collective: gradients that overflow on any rank are left unchanged, so that step() is skipped.
  void clip_values(double limit);
  /// Whether step_late() is available: every rank's optimizer and device support it, and no loss scale is used. The
  /// first call on a device is collective.
  bool steps_late();
  /// gradient_norm(), clip_by() and step() in one call; the host waits for none of them. Returns the norm before
  /// clipping: if it turns out not to be finite, weights and states are unchanged, and forget_step() must be called
  /// before the next step.
  nn::LateNumber step_late(double max_norm);
  void forget_step() { update_->forget_step(); }
  /// Updates the weights; false: skipped because fp16 gradients overflowed (the loss scale has been lowered).
  bool step();
  /// Ends a step without an update, instead of step().
  void end_step();
  void zero_grad();  ///< releases all gradients

  /// Installs `schedule` and applies it at the current step count. Empty: learning rates stay unchanged.
  void set_schedule(RateSchedule schedule);
  /// Same, from a schedule with parameters; reduce_lr_on_plateau follows evaluated(). `of_embeddings`: for all
  /// parameter groups except the first, if they differ.
  void set_schedule(const optim::Schedule& schedule, const std::optional<optim::Schedule>& of_embeddings = {});
  /// Multiplies learning rates by factor(steps taken) as well.
  void scale_rates(std::function<double(std::int64_t steps)> factor);
  /// Advances the schedule by one step.
  void step_schedule() { set_schedule_steps(schedule_steps_ + 1); }
  std::int64_t schedule_steps() const { return schedule_steps_; }  ///< steps the schedule has taken
  void set_schedule_steps(std::int64_t steps);                     ///< also sets the learning rates of that step
  /// false: the schedule moves betas but the optimizer has none.
  bool moves_betas() const { return moves_betas_; }
  bool follows_evaluations() const { return schedule_.plateau != nullptr; }  ///< reduce_lr_on_plateau
  /// Reports an evaluation's metric, the same number on every rank; no effect unless follows_evaluations().
  void evaluated(double metric);

  /// State of the optimizer, the schedule and the loss scale for a checkpoint, without tensors.
  checkpoint::ModelState state() const;
  /// Restores that state, after the schedule is set, and the optimizer's tensors (Update::restore). Throws InputError
  /// for the tensors of another model or optimizer.
  void restore(const checkpoint::ModelState& state, const std::string& folder,
               const std::shared_ptr<format::ReadSums>& sums = {}, const std::string& stem = "optimizer");
  /// The trained weights, the optimizer's tensors and the state of gradient compression, as stored in a checkpoint.
  /// This object must outlive the save.
  SavedModel saved_model() const;
  /// Writes a checkpoint's facts about its only or first model and about its writer: seed, configuration, mesh.
  void write_to(checkpoint::RunState& state, const RunConfig& config) const;

 private:
  double gradient_factor() const { return loss_scale_ ? loss_scale_->gradient_factor() : 1.0; }

  std::shared_ptr<torch::nn::Module> module_;
  std::optional<Sharded> sharded_;
  std::unique_ptr<Update> update_;
  std::shared_ptr<optim::LossScale> loss_scale_;
  std::optional<Sharded::NoSync> pause_;
  std::optional<double> scaled_norm_;  // this step's norm
  double clip_ = 1;
  std::optional<bool> steps_late_;  // whether all ranks support step_late(); determined at the first step
  RateSchedule schedule_;
  std::int64_t schedule_steps_ = 0;
  std::function<double(std::int64_t)> rate_factor_;  // empty: 1
  bool moves_betas_ = true;
};

}  // namespace tessera::train
