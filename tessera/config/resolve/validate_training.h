#pragma once
/// \file
/// The part of validate() and unused_settings() that is about the training loop.

#include <tessera/config/core/problems.h>
#include <tessera/config/sections/words.h>

#include <string>

namespace tessera::config {

struct Resolved;

/// Adds to `problems` what contradicts itself among schedules, precision, logging, evaluating and saving.
void validate_training(const Resolved& resolved, Problems& problems);

/// Which of --lr_scheduler_kwargs says how far the rate of such a schedule falls, as a rate; "": none does.
std::string least_rate_parameter(ScheduleType type);

void unused_training(const Resolved& resolved, const Unused& unused);

}  // namespace tessera::config
