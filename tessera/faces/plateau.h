#pragma once
/// \file
/// reduce_lr_on_plateau (optim/plateau.h) for every parameter group of an optimizer: what is no improvement is the same
/// for all, how far a group's rate has fallen depends on where it began, as torch's ReduceLROnPlateau has it.

#include <tessera/base/value.h>
#include <tessera/optim/plateau.h>

#include <map>
#include <vector>

namespace tessera::faces {

class PlateauRates {
 public:
  /// `bases`: the learning rates of the groups before the schedule. Throws InputError for parameters that the schedule
  /// does not have.
  PlateauRates(const optim::Schedule& schedule, const std::vector<double>& bases);

  /// Of a group whose base rate is one of `bases`.
  double rate(double base) const { return plateaus_.at(base).learning_rate(); }
  /// After each evaluation, with the same number on every rank.
  void update(double metric);

  /// For a checkpoint.
  Value state() const;
  /// Throws InputError when it was saved of other groups.
  void set_state(const Value& state);

 private:
  std::map<double, optim::Plateau> plateaus_;  // by base rate
};

}  // namespace tessera::faces
