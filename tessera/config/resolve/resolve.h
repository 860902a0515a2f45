#pragma once
/// \file
/// config/resolve/: builds one checked configuration from all sources. It uses every front end and every rule.
///
/// Precedence: default < file (--fsdp_config) < environment < flag. No function here prints or writes.

#include <tessera/base/value.h>
#include <tessera/config/core/resolved.h>

#include <string>
#include <vector>

namespace tessera::config {

/// Reads flags: --x_y V, --x-y V, --x=V; booleans --x, --x true|false, --no_x. Invalid flags and values are added to
/// `problems`; their settings keep the defaults. --local_rank belongs to the launcher and must be removed first
/// (launch::read_rank_environment does).
Resolved resolve_flags(const std::vector<std::string>& arguments, Problems& problems,
                       const GetEnvironment& environment = {});
/// As above, but throws one InputError with all problems.
Resolved resolve_flags(const std::vector<std::string>& arguments, const GetEnvironment& environment = {});

/// Checks everything that `tessera train` needs to start: the rules between settings and the files they name. Adds to
/// `problems`; skips settings whose problem has already been reported.
void validate(const Resolved& resolved, Problems& problems);
/// As above, but throws one InputError with all problems.
void validate(const Resolved& resolved);

/// resolve_flags + validate, with all problems in one InputError: the first step of `tessera train`.
Resolved resolve_and_validate(const std::vector<std::string>& arguments, const GetEnvironment& environment = {});

/// Warnings: settings that were given but have no effect ("--momentum has no effect: --optim is adamw"), and `notes`.
std::vector<std::string> unused_settings(const Resolved& resolved);

/// A hint for a run that uses the CPU by default on a machine with a GPU; otherwise "".
std::string unused_gpu(const Resolved& resolved, bool has_gpu);

/// {"optimization": {"learning_rate": {"value": 5e-05, "origin": "--learning_rate"}, ...}, ...}: every setting, by
/// section, in the order of the table. For --print_config and the report.
Value to_value(const Resolved& resolved);

}  // namespace tessera::config
