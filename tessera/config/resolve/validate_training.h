#pragma once
/// \file
/// The part of validate() and unused_settings() for the training loop.

#include <tessera/config/core/problems.h>
#include <tessera/config/sections/words.h>

#include <string>

namespace tessera::config {

struct Resolved;

/// Adds contradictions among the settings of schedules, precision, logging, evaluation and saving to `problems`.
void validate_training(const Resolved& resolved, Problems& problems);

/// Name of the --lr_scheduler_kwargs entry that sets such a schedule's minimum as a rate; "": none.
std::string least_rate_parameter(ScheduleType type);

void unused_training(const Resolved& resolved, const Unused& unused);

}  // namespace tessera::config
