#pragma once
/// \file
/// The end of a step, shared by `tessera train` and tessera::Trainer: the update, or the handling of a step whose
/// gradients are not finite (--fp16, --nan_policy).

#include <tessera/comm/group.h>
#include <tessera/train/core/step.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace tessera::train {

/// Hooks around an update; each may be empty.
struct UpdateHooks {
  /// Returns the source of a non-finite gradient, in addition to rank and parameter; "": unknown. Collective.
  std::function<std::string()> find_source = {};
  std::function<void()> before_failing = {};  ///< called before the error that ends the training is thrown. Collective
  std::function<void()> before_update = {};   ///< called after clipping, right before the optimizer
  /// Whether the outcome of each step must be known when it ends. false: a device that supports it decides by itself,
  /// and the host learns the outcome one step later, without a wait that would leave the device idle.
  bool outcome_at_once = true;
};

/// Every rank has one; all make the same decision because all have the same norm. Not thread-safe.
class GuardedUpdate {
 public:
  struct Outcome {
    double learning_rate = 0;  ///< rate of the first parameter group in this step
    // With outcome_at_once:
    double grad_norm = 0;  ///< before clipping
    bool taken = false;    ///< false: skipped; weights and optimizer are unchanged
  };

  /// `core` (with its module already divided) and `config` must outlive this object. `all`: every rank of the training.
  GuardedUpdate(StepCore& core, comm::Group all, const RunConfig& config, UpdateHooks hooks);

  /// Clips gradients, updates the weights and advances the schedule after the backward passes of step `step` (the first
  /// is 1). Throws Error if the gradients are not finite and neither --fp16 nor --nan_policy skip covers such a step;
  /// only rank 0's error has a text. Collective.
  Outcome finish_step(std::int64_t step);
  /// Determines the outcome of the last step. Call it before reading norms, step counts or the optimizer's states.
  /// Throws like finish_step(), for that step. Collective.
  void settle() { settle(/*has_gradients=*/true); }
  /// The gradient norm of the last step before clipping; valid after settle().
  double grad_norm() const { return grad_norm_; }

  std::int64_t skipped() const { return skipped_; }  ///< steps without an update
  std::int64_t take_newly_skipped();                 ///< steps skipped since the last call

 private:
  struct Pending {
    std::int64_t step;
    nn::LateNumber norm;
  };

  /// `has_gradients`: that step's gradients are still in memory.
  void settle(bool has_gradients);
  bool admits(std::int64_t step, double norm, bool has_gradients);
  std::string place_of_first_not_finite();

  StepCore& core_;
  comm::Group all_;
  const RunConfig& config_;
  UpdateHooks hooks_;
  std::optional<Pending> pending_;  // the last step, as long as its norm has not been checked
  double grad_norm_ = 0;
  std::int64_t skipped_ = 0, told_ = 0;
  std::int64_t in_a_row_ = 0;  // for --nan_skip_limit
};

}  // namespace tessera::train
