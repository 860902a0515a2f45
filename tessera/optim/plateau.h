#pragma once
/// \file
/// reduce_lr_on_plateau: the learning rate falls when a metric has stopped improving. The rules are those of
/// torch.optim.lr_scheduler.ReduceLROnPlateau.

#include <tessera/optim/schedule.h>

#include <cstdint>
#include <optional>

namespace tessera::optim {

/// What a checkpoint keeps.
struct PlateauState {
  double learning_rate = 0;
  double best = 0;            ///< infinite before the first metric
  std::int64_t bad = 0;       ///< metrics in a row that were no improvement
  std::int64_t cooldown = 0;  ///< metrics to come that are not counted as bad
};

class Plateau {
 public:
  /// Parameters of `schedule` and their defaults: mode = min (min | max), factor = 0.1, patience = 10, threshold =
  /// 1e-4, threshold_mode = rel (rel | abs), cooldown = 0, min_lr = 0, eps = 1e-8. Throws InputError for values out of
  /// range.
  explicit Plateau(const Schedule& schedule);

  double learning_rate() const { return state_.learning_rate; }
  /// After each evaluation, with the same number on every rank. Not a number counts as no improvement.
  void update(double metric);

  const PlateauState& state() const { return state_; }
  void set_state(const PlateauState& state) { state_ = state; }

 private:
  bool improves(double metric) const;

  bool smaller_is_better_, relative_;
  double factor_, threshold_, least_, smallest_change_;
  std::int64_t patience_, cooldown_;
  PlateauState state_;
};

/// The plateau of a schedule that needs one, else nullopt. Throws as the constructor.
std::optional<Plateau> make_plateau(const Schedule& schedule);

}  // namespace tessera::optim
