#pragma once
/// \file
/// --optim_args and --lr_scheduler_kwargs as values: which parameters each optimizer and each schedule has by name, for
/// those who check, plan and train.

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

/// The pairs of --optim_args. Throws InputError as parse_overrides() and check_parameters() do.
NamedParameters optimizer_parameters(const OptimizationConfig& config);
/// The pairs of --lr_scheduler_kwargs. Throws likewise.
NamedParameters schedule_parameters(const OptimizationConfig& config);

/// Throws InputError for a parameter that there is not, with the nearest and the known ones, and for one that is not a
/// number, true or false, or a word where it must be; for an optimizer's number outside its range, too. What numbers
/// must be together, and a schedule's ranges, are checked by those who compute with them.
void check_parameters(OptimizerKind kind, const NamedParameters& given);
void check_parameters(ScheduleType type, const NamedParameters& given);

/// nullptr: not given, or null.
const Value* find_parameter(const NamedParameters& given, std::string_view name);

}  // namespace tessera::config
