#pragma once
/// \file
/// Learning-rate schedules, by the names, parameters and formulas of transformers/optimization.py.

#include <tessera/base/value.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tessera::optim {

/// type                  parameters (lr_scheduler_kwargs) and their defaults
/// linear, constant, constant_with_warmup
/// cosine                num_cycles = 0.5
/// cosine_with_restarts  num_cycles = 1
/// cosine_with_min_lr    num_cycles = 0.5; min_lr or min_lr_rate (a share of the learning rate), one of them
/// polynomial            lr_end = 1e-7, power = 1
/// inverse_sqrt          timescale = warmup_steps, or 10000 without warm-up
/// warmup_stable_decay   num_decay_steps; num_stable_steps = all that is left; warmup_type = linear, decay_type =
/// cosine
///                       (linear | cosine | 1-sqrt); min_lr_ratio = 0; num_cycles = 0.5
struct Schedule {
  std::string type = "linear";
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 0;
  double learning_rate = 0;  ///< the peak; only min_lr and lr_end, which are absolute, look at it
  std::vector<std::pair<std::string, Value>> parameters = {};
};

/// Learning-rate factor of step `step` (from 0). Throws InputError for an unknown type or parameter (naming the known
/// ones), a parameter that is missing or out of range, or a negative number of steps.
double schedule_factor(const Schedule& schedule, std::int64_t step);
/// Throws what schedule_factor() would: before a run begins.
void check_schedule(const Schedule& schedule);

}  // namespace tessera::optim
