#pragma once
/// \file
/// Where the value of a setting came from, and how that is printed.

#include <tessera/base/value.h>

#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>

namespace tessera::config {

/// Where the value of a setting comes from, to be shown to the user.
struct Origin {
  enum class Kind : unsigned char { by_default, flag, environment, file, derived, program };  ///< who gave the value

  Kind kind = Kind::by_default;  ///< decides which of the members below mean something
  std::string name = {};     ///< the flag as it was typed, the variable, why the value was derived, the function called
  std::string file = {};     ///< only of Kind::file
  int line = 0, column = 0;  ///< only of Kind::file, from 1; line 0: the file as a whole

  /// `typed`: the flag as it was typed; `variable`: its name; `why`: the cause in words; `function`: its name with ().
  static Origin flag(std::string typed) { return {Kind::flag, std::move(typed)}; }
  static Origin environment(std::string variable) { return {Kind::environment, std::move(variable)}; }
  static Origin derived(std::string why) { return {Kind::derived, std::move(why)}; }
  static Origin program(std::string function) { return {Kind::program, std::move(function)}; }
  static Origin at(const SourcePos& where);  ///< the place in a file, or the flag or variable that it names

  bool is_default() const { return kind == Kind::by_default; }  ///< nobody gave the value, and it follows from no other
  bool is_flag() const { return kind == Kind::flag; }           ///< it stands on the command line
  /// Somebody gave the value; it is neither the default nor follows from other settings.
  bool is_given() const { return kind != Kind::by_default && kind != Kind::derived; }

  /// "default", "--flag", "environment NAME", "fsdp.json:3", "derived (why)": as --print_config prints it.
  std::string str() const;
  bool operator==(const Origin&) const = default;
};

/// Prints str(), so that messages may name an origin.
inline std::ostream& operator<<(std::ostream& out, const Origin& origin) { return out << origin.str(); }

/// Whether what str() has printed is of a value that somebody gave.
bool printed_as_given(std::string_view origin);

/// A setting that an argument implies where nobody says otherwise; of each setting the first one counts. A name that
/// only one program has implies that program's defaults, --model_type its smallest model.
struct Implied {
  std::string setting, text;  ///< the setting's name, and its value as text
  std::string name;           ///< the argument, as given
  std::string program;        ///< whose default it is ("TRL"); empty: the argument itself means the setting
  std::string argument;       ///< the argument's key in its table
  Origin origin;              ///< where the argument stands
  bool off = false;           ///< the argument is a switch that is false: `text` holds whatever else gives the setting
  bool taken = false;         ///< nobody said otherwise: it holds now
};

/// Looks up an environment variable; the default asks the process's own environment. An empty variable counts as not
/// set.
using GetEnvironment = std::function<std::optional<std::string>(const std::string&)>;

}  // namespace tessera::config
