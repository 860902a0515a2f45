#pragma once
/// \file
/// A configuration with the origin of every value: filled by front ends and checked by rules.

#include <tessera/config/core/origin.h>
#include <tessera/config/core/problems.h>
#include <tessera/config/core/run_config.h>

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::config {

/// A configuration and the origins of its values.
struct Resolved {
  RunConfig values;  ///< each within its own bounds; validate() checks the rules between them
  /// By setting (fields.h); settings without an entry have their defaults.
  std::map<std::string, Origin, std::less<>> origins;
  /// Warnings about parts of files that have no effect here, or a different effect than in their own system.
  std::vector<std::string> notes;
  std::vector<Implied> implied;  ///< settings implied by arguments

  /// `setting`: a name in the table of fields.h.
  const Origin& origin(std::string_view setting) const;
  bool is_default(std::string_view setting) const { return origin(setting).is_default(); }
  /// The flag as typed, or the setting with its file and line or other origin.
  std::string said(std::string_view setting) const;
};

}  // namespace tessera::config
