#pragma once
/// \file
/// reduce_lr_on_plateau: the learning rate falls when a metric has stopped improving. The rules are those of
/// torch.optim.lr_scheduler.ReduceLROnPlateau.

#include <tessera/base/value.h>
#include <tessera/optim/schedule.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace tessera::optim {

/// Every parameter group follows it: what is no improvement is the same for all; how far a group's rate has
/// fallen depends on where it began.
class Plateau {
 public:
  /// `bases`: the learning rates of the groups before the schedule. Parameters of `schedule` and their defaults: mode =
  /// min (min | max), factor = 0.1, patience = 10, threshold = 1e-4, threshold_mode = rel (rel | abs), cooldown = 0,
  /// min_lr = 0, eps = 1e-8. Throws InputError for values out of range.
  Plateau(const Schedule& schedule, const std::vector<double>& bases);
  /// One group, whose base is the schedule's learning rate.
  explicit Plateau(const Schedule& schedule) : Plateau(schedule, {schedule.learning_rate}) {}

  /// The learning rate of a group whose base rate is one of `bases`.
  double rate(double base) const { return rates_.at(base); }
  /// After each evaluation, with the same number on every rank. Not a number counts as no improvement.
  void update(double metric);

  /// What a checkpoint keeps: of one base rate {"learning_rate", "bad", "cooldown", and "best" once there was a
  /// metric}, of several an array of such objects, by ascending base rate.
  Value state() const;
  /// For one base rate the object or an array of one. Throws InputError when it was saved of other groups.
  void set_state(const Value& state);

 private:
  bool improves(double metric) const;

  bool smaller_is_better_, relative_;
  double factor_, threshold_, least_, smallest_change_;
  std::int64_t patience_, cooldown_;
  std::map<double, double> rates_;  // by base rate
  double best_;                     // infinite before the first metric
  std::int64_t bad_ = 0;            // metrics in a row that were no improvement
  std::int64_t cooling_ = 0;        // metrics to come that are not counted as bad
};

/// The plateau of a schedule that needs one, else nullopt. Throws as the constructor.
std::optional<Plateau> make_plateau(const Schedule& schedule);

}  // namespace tessera::optim
