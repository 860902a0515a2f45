#pragma once
/// \file
/// The problems of a configuration, collected before any of them is thrown.

#include <tessera/config/sections/words.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

namespace tessera::config {

/// What is wrong, one line each, and the settings whose values cannot be relied on because of it.
struct Problems {
  std::vector<std::string> lines;  ///< in the order in which they were found
  std::set<std::string> doubtful;  ///< names of the settings
  /// What becomes of unknown words in files that are read after the flags.
  UnknownWords unknown = UnknownWords::automatic;
  /// What tells that the configuration is another program's: then nothing else that is found wrong means anything.
  std::vector<std::string> foreign;

  /// What a person is told.
  const std::vector<std::string>& told() const { return foreign.empty() ? lines : foreign; }
};

/// Takes the name of a setting that has no effect, if it was given, and why.
using Unused = std::function<void(const char* name, const std::string& why)>;

/// Throws InputError with one problem per line; returns when there is none.
void throw_if_any(const Problems& problems);

}  // namespace tessera::config
