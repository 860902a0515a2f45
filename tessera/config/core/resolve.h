#pragma once
/// \file
/// From what the user said to one checked RunConfig in which every value knows where it came from.
///
/// Precedence: default < file (--fsdp_config) < environment < flag. Nothing is printed or written here.

#include <tessera/base/value.h>
#include <tessera/config/core/origin.h>
#include <tessera/config/core/problems.h>
#include <tessera/config/core/run_config.h>

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::config {

/// A configuration, and where its values come from.
struct Resolved {
  RunConfig values;  ///< each within its own bounds; validate() checks the rules between them
  /// By setting (fields.h); settings that are not in it have their defaults.
  std::map<std::string, Origin, std::less<>> origins;
  /// What files say that has no effect here, or another one than where they come from: each worth a warning.
  std::vector<std::string> notes;
  std::vector<Implied> implied;  ///< settings that arguments imply

  /// `setting`: a name of the table.
  const Origin& origin(std::string_view setting) const;
  bool is_default(std::string_view setting) const { return origin(setting).is_default(); }
};

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

/// {"optimization": {"learning_rate": {"value": 5e-05, "origin": "--learning_rate"}, ...}, ...}: every setting, by
/// section, in the order of the table. For --print_config and the report.
Value to_value(const Resolved& resolved);

}  // namespace tessera::config
