#pragma once
/// \file
/// What the learning rates of an optimizer's parameter groups follow: a schedule, or evaluations
/// (reduce_lr_on_plateau).

#include <tessera/optim/plateau.h>
#include <tessera/optim/schedule.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace tessera::train {

/// What a schedule says after so many steps: the learning rate of a parameter group whose base rate is `base`, and, of
/// one_cycle, the optimizer's betas.
struct RateSchedule {
  std::function<double(std::int64_t steps, double base)> rate = {};           ///< empty: rates stay as they are
  std::function<std::optional<optim::Betas>(std::int64_t steps)> betas = {};  ///< empty, or gives none: betas stay
  std::shared_ptr<optim::Plateau> plateau = {};                               ///< what `rate` says; evaluations move it
  /// Of all groups but the first; empty: rate.
  std::function<double(std::int64_t steps, double base)> of_embeddings = {};
};

/// Throws InputError for parameters that the schedule does not have. `bases`: the groups' rates before the schedule,
/// which reduce_lr_on_plateau lowers; without them it leaves the rates as they are.
RateSchedule rate_schedule(optim::Schedule schedule, const std::vector<double>& bases = {});

}  // namespace tessera::train
