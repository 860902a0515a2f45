#pragma once
/// \file
/// How the learning rates of an optimizer's parameter groups change: by a schedule, or by evaluations
/// (reduce_lr_on_plateau).

#include <tessera/optim/plateau.h>
#include <tessera/optim/schedule.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace tessera::train {

/// A schedule as a function of the step count: the learning rate of a parameter group with base rate `base` and, for
/// one_cycle, the optimizer's betas.
struct RateSchedule {
  std::function<double(std::int64_t steps, double base)> rate = {};           ///< empty: rates do not change
  std::function<std::optional<optim::Betas>(std::int64_t steps)> betas = {};  ///< empty or nullopt: betas do not change
  std::shared_ptr<optim::Plateau> plateau = {};                               ///< state of `rate`
  /// Rate of all groups except the first; empty: `rate` applies to them, too.
  std::function<double(std::int64_t steps, double base)> of_embeddings = {};
};

/// Throws InputError for parameters that the schedule does not have. `bases`: the groups' rates before the schedule,
/// which reduce_lr_on_plateau lowers; without them it leaves the rates unchanged.
RateSchedule rate_schedule(optim::Schedule schedule, const std::vector<double>& bases = {});

}  // namespace tessera::train
