#pragma once
/// \file
/// Removes a command's own flags before the rest is read as flags of `tessera train`.

#include <tessera/base/error.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::tool {

/// Removes "--name VALUE" or "--name=VALUE" and returns the value; `name` is spelt with underscores, but the argument
/// may have hyphens. Throws an InputError that begins with `command` if the value is missing or the flag is given
/// twice.
inline std::optional<std::string> take_flag(std::vector<std::string>& arguments, std::string_view command,
                                            const std::string& name) {
  std::optional<std::string> found;
  for (std::size_t i = 0; i < arguments.size();) {
    const std::size_t equals = arguments[i].find('=');
    std::string given = arguments[i].substr(0, equals);
    if (given.starts_with("--")) std::replace(given.begin() + 2, given.end(), '-', '_');
    if (given != "--" + name) {
      ++i;
      continue;
    }
    const bool beside = equals == std::string::npos;
    if (beside && i + 1 == arguments.size()) throw InputError(concat(command, ": --", name, " needs a value"));
    const std::string value = beside ? arguments[i + 1] : arguments[i].substr(equals + 1);
    if (found) throw InputError(concat(command, ": --", name, " is given twice"));
    found = value;
    const auto begin = arguments.begin() + static_cast<std::ptrdiff_t>(i);
    arguments.erase(begin, begin + (beside ? 2 : 1));
  }
  return found;
}

/// Removes "--name" and returns whether it was present.
inline bool take_switch(std::vector<std::string>& arguments, const std::string& name) {
  return std::erase(arguments, "--" + name) > 0;
}

}  // namespace tessera::tool
