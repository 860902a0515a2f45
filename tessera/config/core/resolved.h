#pragma once
/// \file
/// A configuration in which every value knows where it came from: what front ends fill and rules examine.

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
  /// The flag as typed, or the setting with the file and line, or whatever else it comes from.
  std::string said(std::string_view setting) const;
};

}  // namespace tessera::config
