#pragma once
/// \file
/// Parses --optim_args and --lr_scheduler_kwargs: the named parameters of each optimizer and schedule, for checks,
/// planner and training.

#include <tessera/base/value.h>
#include <tessera/config/sections/words.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera {
struct OptimizationConfig;
}

namespace tessera::config {

using NamedParameters = std::vector<std::pair<std::string, Value>>;

/// The pairs of --optim_args. Throws InputError like parse_overrides() and check_parameters().
NamedParameters optimizer_parameters(const OptimizationConfig& config);
/// The pairs of --lr_scheduler_kwargs. Throws the same errors.
NamedParameters schedule_parameters(const OptimizationConfig& config);

/// Throws InputError for an unknown parameter (with the nearest and the known ones), for a value of the wrong type
/// (number, boolean, word), and for an optimizer's number outside its range. Rules between numbers, and a schedule's
/// ranges, are checked by the code that uses them.
void check_parameters(OptimizerKind kind, const NamedParameters& given);
void check_parameters(ScheduleType type, const NamedParameters& given);

/// Returns nullptr if the parameter is absent or null.
const Value* find_parameter(const NamedParameters& given, std::string_view name);

}  // namespace tessera::config
