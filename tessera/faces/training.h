#pragma once
/// \file
/// faces/: the faces of the systems that users know (DeepSpeed's initialize, Accelerate's Accelerator, Hugging Face's
/// Trainer) around any torch::nn::Module. This header: what all three are made of, a module under training.
///
///   t.expect_step(last micro-batch?);              // before its forward: whether its backward reduces gradients
///   { const auto precision = t.autocast(); loss = ...; }
///   t.backward(loss);                              // every micro-batch
///   t.clip(1.0);  t.step();  t.zero_grad();        // once a step

#include <torch/nn/module.h>

#include <tessera/comm/world.h>
#include <tessera/config/core/run_config.h>
#include <tessera/faces/update.h>
#include <tessera/nn/autocast.h>
#include <tessera/optim/loss_scale.h>
#include <tessera/optim/schedule.h>
#include <tessera/parallel/fully_shard.h>
#include <tessera/train/core/precision.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace tessera::faces {

/// What a schedule says after so many steps: the learning rate of a parameter group whose base rate is `base`, and, of
/// one_cycle, the optimizer's betas.
struct RateSchedule {
  std::function<double(std::int64_t steps, double base)> rate = {};
  std::function<std::optional<optim::Betas>(std::int64_t steps)> betas = {};
};
RateSchedule rate_schedule(optim::Schedule schedule);

/// Collective where Sharded's functions are. Not thread-safe.
class Training {
 public:
  /// Moves the module to the world's device and divides it over the ranks of `group` (empty: all) as the configuration
  /// says; gradients are means over ranks. `accumulation`: micro-batches of a step.
  Training(std::shared_ptr<torch::nn::Module> module, RunConfig config, std::int64_t accumulation,
           const MakeUpdate& make_update, comm::Group group = {});

  torch::nn::Module& module() { return *module_; }
  Sharded& sharded() { return *sharded_; }
  Update& update() { return *update_; }
  const RunConfig& config() const { return config_; }
  const comm::Group& group() const { return group_; }
  optim::LossScale* loss_scale() { return loss_scale_.get(); }  ///< nullptr: not in fp16
  /// From now on both follow one loss scale, that of `other`: every step of either adapts it (Accelerate has one scaler
  /// for all optimizers). Whoever takes a step then calls rescale_gradients() of the others if the scale has changed.
  void share_loss_scale(const Training& other) { loss_scale_ = other.loss_scale_; }
  /// Gradients that are already here follow a loss scale that has become `factor` times what it was.
  void rescale_gradients(double factor);
  std::int64_t accumulation() const { return accumulation_; }
  void set_accumulation(std::int64_t accumulation) { accumulation_ = accumulation; }

  /// Belongs around the forward pass (train/core/precision.h).
  [[nodiscard]] nn::Autocast autocast() const {
    return nn::Autocast(train::training_precision(config_), group_.device().type());
  }
  /// Around a forward pass that evaluates.
  [[nodiscard]] nn::Autocast evaluation_autocast() const {
    return nn::Autocast(train::evaluation_precision(config_), group_.device().type());
  }
  /// Outputs that are narrow become fp32, as Accelerate does: losses need the range.
  static at::Tensor widen(const at::Tensor& output);
  /// module.forward(...) under autocast(); a tensor that comes out is widened. `module`: the trained one, by its own
  /// type.
  template <class M, class... Arguments>
  auto forward(M& module, Arguments&&... arguments) const {
    const nn::Autocast precision = autocast();
    auto output = module.forward(std::forward<Arguments>(arguments)...);
    if constexpr (std::is_same_v<decltype(output), at::Tensor>)
      return widen(output);
    else
      return output;
  }

  /// Whether the next backward is the last of its step; others keep their gradients here where the strategy allows it
  /// (Sharded::NoSync).
  void expect_step(bool is_last);
  /// loss (one element), divided by the micro-batches of a step and multiplied by the loss scale; backward. Throws
  /// InputError for more.
  void backward(const at::Tensor& loss);
  /// Another Training's backward may have reached this one's module, too.
  void gradients_changed() { scaled_norm_.reset(); }

  /// The norm of the step's gradients over all ranks, without the loss scale. Computed once a step.
  double gradient_norm();
  /// Gradients are to be scaled by min(1, max_norm / (norm + 1e-6)) in step(). Returns the norm before. With fp16 it
  /// may be infinite: the step will be skipped. Otherwise a norm that is not finite throws Error naming rank and
  /// parameter.
  double clip(double max_norm);
  /// The same with a norm of more gradients than these (of several modules together).
  void clip_by(double norm, double max_norm);
  /// Updates the weights; false: skipped, since fp16 gradients overflowed (the loss scale has been lowered).
  bool step();
  void zero_grad();

  /// Learning rates follow the schedule from now on, at once that of the steps taken so far. Empty: they stay as they
  /// are.
  void set_schedule(RateSchedule schedule);
  /// One step on.
  void step_schedule();
  std::int64_t schedule_steps() const { return schedule_steps_; }
  void set_schedule_steps(std::int64_t steps);

  std::int64_t skipped_steps() const { return loss_scale_ ? loss_scale_->state().skipped_steps : 0; }

 private:
  bool fixed_order() const { return config_.parallel.deterministic_reduce; }

  std::shared_ptr<torch::nn::Module> module_;
  RunConfig config_;
  comm::Group group_;
  std::int64_t accumulation_;
  std::optional<Sharded> sharded_;
  std::unique_ptr<Update> update_;
  std::shared_ptr<optim::LossScale> loss_scale_;
  std::optional<Sharded::NoSync> pause_;
  std::optional<double> scaled_norm_;  // of this step
  double clip_ = 1;
  RateSchedule schedule_;
  std::int64_t schedule_steps_ = 0;
};

/// The schedule of the configuration (--lr_scheduler_type and so on) over `total_steps`. Throws InputError for one that
/// does not hold, or that needs total_steps > 0 and has none.
RateSchedule configured_schedule(const OptimizationConfig& config, std::int64_t total_steps);

/// Joins the job unless the program has done so (tessera::init).
comm::World& ensure_world(const RunConfig& config);

}  // namespace tessera::faces
