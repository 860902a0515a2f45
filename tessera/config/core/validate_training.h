#pragma once
/// \file
/// The part of validate() and unused_settings() that is about the training loop.

#include <tessera/config/core/words.h>

#include <functional>
#include <string>

namespace tessera::config {

struct Problems;
struct Resolved;

/// Adds to `problems` what contradicts itself among schedules, precision, logging, evaluating and saving.
void validate_training(const Resolved& resolved, Problems& problems);

/// Which of --lr_scheduler_kwargs says how far the rate of such a schedule falls, as a rate; "": none does.
std::string least_rate_parameter(ScheduleType type);

/// Told that a setting, if it was given, has no effect, and why.
using Unused = std::function<void(const char* name, const std::string& why)>;
void unused_training(const Resolved& resolved, const Unused& unused);

}  // namespace tessera::config
