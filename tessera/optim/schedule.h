#pragma once
/// \file
/// Learning-rate schedules, with the names, parameters and formulas of transformers/optimization.py and of DeepSpeed.

#include <tessera/base/value.h>
#include <tessera/config/sections/words.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tessera::optim {

/// type                  parameters (lr_scheduler_kwargs) and their defaults
/// linear, constant, constant_with_warmup
/// linear, polynomial, cosine, cosine_with_min_lr, warmup_stable_decay, in addition: num_training_steps = all steps:
///                       the rate falls over this many steps and is constant afterwards (Megatron's lr_decay_iters;
///                       transformers' argument with this name)
/// these, constant_with_warmup and inverse_sqrt, in addition: warmup_init_lr = 0: the initial rate of the warm-up
///                       (Megatron's lr_warmup_init; for warmup_stable_decay it replaces warmup_type)
/// cosine                num_cycles = 0.5
/// cosine_with_restarts  num_cycles = 1
/// cosine_with_min_lr    num_cycles = 0.5; min_lr or min_lr_rate (a share of the learning rate), one of them
/// cosine_warmup_with_min_lr  the same; warmup_lr_rate (where the warm-up starts) = 1 / warmup_steps
/// polynomial            lr_end = 1e-7, power = 1
/// inverse_sqrt          timescale = warmup_steps, or 10000 without warm-up
/// warmup_stable_decay   num_decay_steps; num_stable_steps = all that is left; warmup_type = linear (linear | cosine |
///                       1-sqrt), decay_type = cosine (the same, or Megatron's exponential: 2 * 0.5^share - 1);
///                       min_lr_ratio = 0; num_cycles = 0.5
/// reduce_lr_on_plateau  torch's ReduceLROnPlateau: see plateau.h, which gives the factor; 1 here
///
/// DeepSpeed's WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle, LRRangeTest. The value "auto" means what transformers
/// fills in: the run's learning rate, warm-up and number of steps.
/// warmup_lr             warmup_min_lr = 0, warmup_max_lr = the learning rate, warmup_num_steps = warmup_steps, or 1000
///                       without warm-up; warmup_type = log (log | linear)
/// warmup_decay_lr       the same, but warmup_max_lr = 0.001; total_num_steps = all steps
/// warmup_cosine_lr      warmup_min_ratio = 0, warmup_num_steps, warmup_type, total_num_steps, cos_min_ratio = 0.0001
/// one_cycle             cycle_min_lr, cycle_max_lr; cycle_first_step_size = 2000, cycle_second_step_size = the same,
///                       decay_step_size = 0, decay_lr_rate = 0; cycle_momentum = true, cycle_min_mom = 0.8,
///                       cycle_max_mom = 0.9, decay_mom_rate = 0
/// lr_range_test         lr_range_test_min_lr = 1e-3, lr_range_test_step_size = 2000, lr_range_test_step_rate = 1,
///                       lr_range_test_staircase = false; with lr_range_test_max_lr the rate grows exponentially and
///                       reaches that rate after step_size steps (ours; `tessera lr-find`)
struct Schedule {
  ScheduleType type = ScheduleType::linear;  ///< the row of the table above
  std::int64_t warmup_steps = 0;             ///< 0: none
  std::int64_t total_steps = 0;              ///< steps of the run; DeepSpeed's schedules may have their own
  double learning_rate = 0;  ///< the peak rate; factors use it only for min_lr and lr_end, which are absolute
  std::vector<std::pair<std::string, Value>> parameters = {};  ///< by name, as in the table
};

/// The decays of an optimizer's averages, if a schedule moves them as well.
struct Betas {
  double beta1 = 0, beta2 = 0;  ///< decays of the averages, and of the averages of squares
};

/// Learning-rate factor of step `step` (from 0). Throws InputError for an unknown parameter (listing the known ones), a
/// parameter that is missing or out of range, or a negative number of steps; Error for DeepSpeed's schedules, which
/// have no factors.
double schedule_factor(const Schedule& schedule, std::int64_t step);
/// Learning rate of step `step`: the factor times `schedule.learning_rate`, or the rate of DeepSpeed's schedule. Throws
/// InputError as above.
double schedule_rate(const Schedule& schedule, std::int64_t step);
/// The betas of one_cycle at a step, for optimizers that have betas; nullopt for all other schedules.
std::optional<Betas> schedule_betas(const Schedule& schedule, std::int64_t step);
/// Checks the schedule before a run starts; throws the errors of schedule_rate().
void check_schedule(const Schedule& schedule);

}  // namespace tessera::optim
