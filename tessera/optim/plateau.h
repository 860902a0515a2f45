#pragma once
/// \file
/// reduce_lr_on_plateau: the learning rate falls when a metric has stopped improving, by the rules of
/// torch.optim.lr_scheduler.ReduceLROnPlateau.

#include <tessera/base/value.h>
#include <tessera/optim/schedule.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace tessera::optim {

/// The schedule applies to every parameter group. Improvements are judged once for all groups; how far a group's rate
/// has fallen depends on its initial rate.
class Plateau {
 public:
  /// `bases`: the learning rates of the groups before the schedule. Parameters of `schedule` and their defaults: mode =
  /// min (min | max), factor = 0.1, patience = 10, threshold = 1e-4, threshold_mode = rel (rel | abs), cooldown = 0,
  /// min_lr = 0, eps = 1e-8. Throws InputError for values out of range.
  Plateau(const Schedule& schedule, const std::vector<double>& bases);
  /// A single group, whose base is the schedule's learning rate.
  explicit Plateau(const Schedule& schedule) : Plateau(schedule, {schedule.learning_rate}) {}

  /// The learning rate of a group whose base rate is one of `bases`.
  double rate(double base) const { return rates_.at(base); }
  /// Call after each evaluation, with the same metric on every rank. NaN does not count as an improvement.
  void update(double metric);

  /// State for a checkpoint: for one base rate {"learning_rate", "bad", "cooldown", and "best" after the first metric},
  /// for several an array of such objects, by ascending base rate.
  Value state() const;
  /// Accepts, for one base rate, the object or an array of one. Throws InputError if the state was saved with different
  /// groups.
  void set_state(const Value& state);

 private:
  bool improves(double metric) const;

  bool smaller_is_better_, relative_;
  double factor_, threshold_, least_, smallest_change_;
  std::int64_t patience_, cooldown_;
  std::map<double, double> rates_;  // by base rate
  double best_;                     // infinite before the first metric
  std::int64_t bad_ = 0;            // consecutive metrics without improvement
  std::int64_t cooling_ = 0;        // remaining metrics that do not count as bad
};

/// Returns the plateau of a schedule that needs one, otherwise nullopt. Throws the constructor's errors.
std::optional<Plateau> make_plateau(const Schedule& schedule);

}  // namespace tessera::optim
