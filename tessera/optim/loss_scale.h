#pragma once
/// \file
/// Loss scaling for fp16: the loss is multiplied by a factor so that small gradients do not vanish in half precision,
/// and the gradients are divided by it in the optimizer's pass. Follows the semantics of torch.amp.GradScaler or of
/// DeepSpeed's DynamicLossScaler (deepspeed/runtime/fp16/loss_scaler.py).
///
///   (loss * scale.scale()).backward();
///   const double norm = ... ;                                    // the scaled gradients' norm, on all ranks
///   const double factor = scale.gradient_factor();               // 1 / scale, of this step
///   if (scale.update(norm)) optimizer->step(rate, factor * clip_coefficient(norm * factor, max_norm));

#include <tessera/checkpoint/run_state.h>

#include <cstdint>

namespace tessera::optim {

/// Parameters for the start, growth and backoff of an fp16 loss scale.
struct LossScaleOptions {
  bool dynamic = true;                  ///< false: the scale is constant; steps with bad gradients are still skipped
  double initial = 65536;               ///< GradScaler's init_scale
  double growth_factor = 2;             ///< at least 1
  double backoff_factor = 0.5;          ///< in (0, 1)
  std::int64_t growth_interval = 2000;  ///< consecutive good steps before the scale grows
  double minimum = 1.0 / 65536;         ///< lower bound of a dynamic scale; update() throws below it
  std::int64_t hysteresis = 1;          ///< number of bad steps until the scale is lowered
  /// When a used-up hysteresis is restored. true: at every good step; false: when the scale grows.
  bool consecutive_hysteresis = false;
  /// DynamicLossScaler counts good steps since the last bad one and skips the first of them; GradScaler counts all good
  /// steps since the scale changed.
  bool first_good_step_counts = true;
};

/// State of the loss scale for a checkpoint.
using LossScaleState = checkpoint::LossScaleState;

/// The factor by which an fp16 loss is multiplied so that small gradients do not become zero.
class LossScale {
 public:
  /// Throws InputError for options out of range.
  explicit LossScale(const LossScaleOptions& options = {});

  /// Multiply the loss (of every micro-batch) by this.
  double scale() const { return state_.scale; }
  /// Multiply every gradient by this.
  double gradient_factor() const { return 1 / state_.scale; }
  /// Call once per step, after the gradients: returns true if `gradient_norm` (the global norm of the scaled gradients,
  /// equal on every rank) is finite and the step must be taken; false if it must be skipped. Adapts the scale for the
  /// next step. Throws Error if the scale would fall below the minimum: in that case the loss itself is not finite, or
  /// the model is not suitable for fp16.
  bool update(double gradient_norm);

  const LossScaleState& state() const { return state_; }  ///< for checkpoints
  /// Throws InputError for a scale that is not positive and finite or for negative counts.
  void set_state(const LossScaleState& state);

 private:
  void count_good_step();
  void lower(double gradient_norm);

  LossScaleOptions options_;
  LossScaleState state_;
};

}  // namespace tessera::optim
