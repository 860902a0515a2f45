#pragma once
/// \file
/// The problems of a configuration, collected before one error is thrown.

#include <tessera/config/sections/words.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

namespace tessera::config {

/// Problems, one line each, and the settings that they make unreliable.
struct Problems {
  std::vector<std::string> lines;  ///< in order of discovery
  std::set<std::string> doubtful;  ///< names of the settings
  /// How to handle unknown words in files that are read after the flags.
  UnknownWords unknown = UnknownWords::automatic;
  /// Evidence that the configuration belongs to another program; if any, all other problems are meaningless.
  std::vector<std::string> foreign;

  /// The lines to show to the user.
  const std::vector<std::string>& told() const { return foreign.empty() ? lines : foreign; }
};

/// Called with the name of a setting that has no effect and the reason; reports it if the setting was given.
using Unused = std::function<void(const char* name, const std::string& why)>;

/// Throws InputError with one problem per line, if there are any.
void throw_if_any(const Problems& problems);

}  // namespace tessera::config
