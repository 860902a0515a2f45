#pragma once
/// \file
/// config/resolve/: from what the user said to one checked configuration. It knows every front end and every rule.
///
/// Precedence: default < file (--fsdp_config) < environment < flag. Nothing is printed or written here.

#include <tessera/base/value.h>
#include <tessera/config/core/resolved.h>

#include <string>
#include <vector>

namespace tessera::config {

/// Reads flags: --x_y V, --x-y V, --x=V; booleans --x, --x true|false, --no_x. Wrong flags and values are added to
/// `problems` and leave their defaults. --local_rank is the launcher's: remove it before (launch::read_rank_environment
/// does).
Resolved resolve_flags(const std::vector<std::string>& arguments, Problems& problems,
                       const GetEnvironment& environment = {});
/// As above; any problem throws InputError with all of them.
Resolved resolve_flags(const std::vector<std::string>& arguments, const GetEnvironment& environment = {});

/// The rules between settings, and the files they name: what `tessera train` needs to start. Adds to `problems`; passes
/// over doubtful settings, whose problem has been named already.
void validate(const Resolved& resolved, Problems& problems);
/// As above; any problem throws InputError with all of them.
void validate(const Resolved& resolved);

/// resolve_flags + validate, with the problems of both in one InputError: what `tessera train` does first.
Resolved resolve_and_validate(const std::vector<std::string>& arguments, const GetEnvironment& environment = {});

/// What was given but changes nothing ("--momentum has no effect: --optim is adamw"), and `notes`: each worth a
/// warning.
std::vector<std::string> unused_settings(const Resolved& resolved);

/// What to say where the run is on the CPU because nothing was said, and the machine has a GPU; else "".
std::string unused_gpu(const Resolved& resolved, bool has_gpu);

/// {"optimization": {"learning_rate": {"value": 5e-05, "origin": "--learning_rate"}, ...}, ...}: every setting, by
/// section, in the order of the table. For --print_config and the report.
Value to_value(const Resolved& resolved);

}  // namespace tessera::config
