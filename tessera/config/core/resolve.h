#pragma once
/// \file
/// From what the user said to one checked RunConfig in which every value knows where it came from.
///
/// Precedence: default < file (--fsdp_config) < environment < flag. Nothing is printed or written here.

#include <tessera/base/value.h>
#include <tessera/config/core/origin.h>
#include <tessera/config/core/run_config.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tessera::config {

/// Looks up an environment variable; the default asks the process's own environment. An empty variable counts as not
/// set.
using GetEnvironment = std::function<std::optional<std::string>(const std::string&)>;

/// A configuration, and where its values come from.
struct Resolved {
  RunConfig values;  ///< each within its own bounds; validate() checks the rules between them
  /// By setting (fields.h); settings that are not in it have their defaults.
  std::map<std::string, Origin, std::less<>> origins;
  /// What files say that has no effect here, or another one than where they come from: each worth a warning.
  std::vector<std::string> notes;
  /// A setting that an argument implies where nobody says otherwise; of each setting the first one counts. A name that
  /// only one program has implies that program's defaults, --model_type its smallest model.
  struct Implied {
    std::string setting, text;  ///< the setting's name, and its value as text
    std::string name;           ///< the argument, as given
    std::string program;        ///< whose default it is ("TRL"); empty: the argument itself means the setting
    std::string argument;       ///< the argument's key in its table
    Origin origin;              ///< where the argument stands
    bool off = false;    ///< the argument is a switch that is false: `text` holds whatever else gives the setting
    bool taken = false;  ///< nobody said otherwise: it holds now
  };
  std::vector<Implied> implied;

  /// `setting`: a name of the table.
  const Origin& origin(std::string_view setting) const;
  bool is_default(std::string_view setting) const { return origin(setting).is_default(); }
};

/// What is wrong, one line each, and the settings whose values cannot be relied on because of it.
struct Problems {
  std::vector<std::string> lines;  ///< in the order in which they were found
  std::set<std::string> doubtful;  ///< names of the settings
  /// What becomes of unknown words in files that are read after the flags.
  UnknownWords unknown = UnknownWords::automatic;
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

/// Throws InputError with one problem per line; returns when there is none.
void throw_if_any(const Problems& problems);

}  // namespace tessera::config
