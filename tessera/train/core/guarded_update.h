#pragma once
/// \file
/// The end of a step, the same for `tessera train` and tessera::Trainer: the update, or the fate of a step whose
/// gradients are not finite (--fp16, --nan_policy).

#include <tessera/comm/group.h>
#include <tessera/train/core/step.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace tessera::train {

/// What a training does around an update; each may be empty.
struct UpdateHooks {
  /// Where a gradient that is not finite came from, beside rank and parameter; "": not known. Collective.
  std::function<std::string()> find_source = {};
  std::function<void()> before_failing = {};  ///< before the error that ends the training. Collective
  std::function<void()> before_update = {};   ///< gradients are clipped, the optimizer is next
  /// Whether somebody must know at the end of each step what became of it. false: a device that can decides by itself,
  /// and the host learns of it one step later, without a wait that would let the device run dry.
  bool outcome_at_once = true;
};

/// Every rank has one, and all decide alike, as all have the same norm. Not thread-safe.
class GuardedUpdate {
 public:
  struct Outcome {
    double learning_rate = 0;  ///< the first parameter group's, in this step
    // With outcome_at_once:
    double grad_norm = 0;  ///< before clipping
    bool taken = false;    ///< false: skipped, and weights and optimizer are as they were
  };

  /// `core`, around a divided module, and `config` outlive it. `all`: every rank of the training.
  GuardedUpdate(StepCore& core, comm::Group all, const RunConfig& config, UpdateHooks hooks);

  /// Clipping, update and schedule after the backward passes of step `step` (the first is 1). Throws Error where the
  /// gradients are not finite and neither --fp16 nor --nan_policy skip passes over such a step; only rank 0's has a
  /// text. Collective.
  Outcome finish_step(std::int64_t step);
  /// Finds out what became of the last step. Call it before anything reads norms, counts of steps or the optimizer's
  /// states. Throws as finish_step(), for that step. Collective.
  void settle() { settle(/*has_gradients=*/true); }
  double grad_norm() const { return grad_norm_; }  ///< the last step's, before clipping; after settle()

  std::int64_t skipped() const { return skipped_; }  ///< steps without an update
  std::int64_t take_newly_skipped();                 ///< those since the last call

 private:
  struct Pending {
    std::int64_t step;
    nn::LateNumber norm;
  };

  /// `has_gradients`: those of that step are still there.
  void settle(bool has_gradients);
  bool admits(std::int64_t step, double norm, bool has_gradients);
  std::string place_of_first_not_finite();

  StepCore& core_;
  comm::Group all_;
  const RunConfig& config_;
  UpdateHooks hooks_;
  std::optional<Pending> pending_;  // the last step, if its norm has not been looked at
  double grad_norm_ = 0;
  std::int64_t skipped_ = 0, told_ = 0;
  std::int64_t in_a_row_ = 0;  // for --nan_skip_limit
};

}  // namespace tessera::train
