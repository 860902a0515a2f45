#pragma once
/// \file
/// The origin of a setting's value, and its printed form.

#include <tessera/base/value.h>

#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>

namespace tessera::config {

/// The origin of a setting's value, for messages.
struct Origin {
  enum class Kind : unsigned char { by_default, flag, environment, file, derived, program };  ///< source of the value

  Kind kind = Kind::by_default;  ///< decides which of the members below are used
  std::string name = {};         ///< flag as typed, variable, reason of the derivation, or function called
  std::string file = {};         ///< only for Kind::file
  int line = 0, column = 0;      ///< only for Kind::file, from 1; line 0: the whole file

  /// `typed`: the flag as typed; `variable`: its name; `why`: the reason; `function`: its name with ().
  static Origin flag(std::string typed) { return {Kind::flag, std::move(typed)}; }
  static Origin environment(std::string variable) { return {Kind::environment, std::move(variable)}; }
  static Origin derived(std::string why) { return {Kind::derived, std::move(why)}; }
  static Origin program(std::string function) { return {Kind::program, std::move(function)}; }
  static Origin at(const SourcePos& where);  ///< a position in a file, or the flag or variable that `where` names

  bool is_default() const { return kind == Kind::by_default; }  ///< neither given nor derived from other settings
  bool is_flag() const { return kind == Kind::flag; }           ///< given on the command line
  /// Whether the user gave the value: it is neither the default nor derived from other settings.
  bool is_given() const { return kind != Kind::by_default && kind != Kind::derived; }

  /// "default", "--flag", "environment NAME", "fsdp.json:3", "derived (why)": the form of --print_config.
  std::string str() const;
  bool operator==(const Origin&) const = default;
};

/// Prints str(), so that messages can contain an origin.
inline std::ostream& operator<<(std::ostream& out, const Origin& origin) { return out << origin.str(); }

/// Whether `origin`, a result of str(), denotes a value that the user gave.
bool printed_as_given(std::string_view origin);

/// A setting that an argument implies unless it is given elsewhere; for each setting the first one wins. An argument
/// that only one program has implies that program's defaults; --model_type implies its smallest model.
struct Implied {
  std::string setting, text;  ///< the setting's name, and its value as text
  std::string name;           ///< the argument as given
  std::string program;        ///< program whose default it is ("TRL"); empty: the argument itself means the setting
  std::string argument;       ///< the argument's key in its table
  Origin origin;              ///< where the argument was given
  bool off = false;           ///< the argument is a false switch: `text` names the other ways to give the setting
  bool taken = false;         ///< no other source gave the setting, so this value is in effect
};

/// Looks up an environment variable, by default in the process's own environment. An empty variable counts as unset.
using GetEnvironment = std::function<std::optional<std::string>(const std::string&)>;

}  // namespace tessera::config
