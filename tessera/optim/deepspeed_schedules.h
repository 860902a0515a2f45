#pragma once
/// \file
/// DeepSpeed's learning-rate schedules (deepspeed/runtime/lr_schedules.py). They return learning rates, not factors: if
/// a schedule has its own bounds, the optimizer's learning rate has no effect. DeepSpeed advances its schedule after
/// each step, so its iteration k applies to step k + 1, and step 0 uses the values set by the constructor.

#include <tessera/optim/schedule_parameters.h>

#include <optional>

namespace tessera::optim {

double deepspeed_warmup_lr(const ScheduleMoment& moment);
double deepspeed_warmup_decay_lr(const ScheduleMoment& moment);
double deepspeed_warmup_cosine_lr(const ScheduleMoment& moment);
double deepspeed_lr_range_test(const ScheduleMoment& moment);
double deepspeed_one_cycle(const ScheduleMoment& moment);
/// Returns nullopt with cycle_momentum = false.
std::optional<Betas> deepspeed_one_cycle_betas(const ScheduleMoment& moment);

}  // namespace tessera::optim
