// Learning-rate schedules: transformers/optimization.py, _get_*_schedule_*_lr_lambda.

#include <tessera/base/error.h>
#include <tessera/optim/optimizer.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace tessera::optim {

double schedule_factor(const Schedule& schedule, std::int64_t step) {
  static const std::array<std::string, 4> types = {"linear", "cosine", "constant", "constant_with_warmup"};
  if (std::find(types.begin(), types.end(), schedule.type) == types.end()) {
    const auto near = nearest(schedule.type, types);
    throw InputError(concat("lr_scheduler_type '", schedule.type, "' is unknown",
                            near ? concat("; did you mean '", *near, "'?") : "", " (known: ", join(types), ")"));
  }
  if (schedule.warmup_steps < 0 || schedule.total_steps < 0 || step < 0)
    throw InputError(concat("learning-rate schedule: step = ", step, ", warmup_steps = ", schedule.warmup_steps,
                            ", total_steps = ", schedule.total_steps, "; none may be negative"));
  if (schedule.type == "constant") return 1;
  const double now = static_cast<double>(step), warmup = static_cast<double>(schedule.warmup_steps);
  const double total = static_cast<double>(schedule.total_steps);
  if (step < schedule.warmup_steps) return now / std::max(1.0, warmup);
  if (schedule.type == "constant_with_warmup") return 1;
  const double decay_steps = std::max(1.0, total - warmup);
  if (schedule.type == "linear") return std::max(0.0, (total - now) / decay_steps);
  constexpr double cycles = 0.5;  // half a cosine wave from 1 to 0, transformers' default
  return std::max(0.0, 0.5 * (1 + std::cos(std::numbers::pi * cycles * 2 * ((now - warmup) / decay_steps))));
}

}  // namespace tessera::optim
