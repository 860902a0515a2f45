#pragma once
/// \file
/// The table of DeepSpeed's keys for the reader: deepspeed_rows() plus the types of the values.

#include <tessera/config/core/translation.h>

#include <span>
#include <string_view>

namespace tessera::config::deepspeed {

enum class Kind {
  flag,     ///< true or false
  whole,    ///< 0, 1, ..., also 5e8
  integer,  ///< may be negative
  number,   ///< integer or real
  text,
  list,     ///< or one word
  section,  ///< an object
  anything,
};

struct Row {
  std::string_view key, setting;
  Effect effect = Effect::acts;
  Kind kind = Kind::anything;
  std::string_view why = {};
  /// Ignored, refused: the values, separated by '|', that request what happens anyway and are silently accepted.
  /// Section: the name of its switch ("enabled": off unless it contains "enabled": true; "enabled*": unless any of its
  /// keys enables it).
  std::string_view harmless = {};
  bool direct = false;       ///< acts: the setting gets the value unchanged
  std::string_view hf = {};  ///< the setting's name in Hugging Face's messages
};

/// A section defined by its keys.
constexpr Row group(std::string_view key) { return {key, "", Effect::acts, Kind::section}; }
/// The setting gets the value unchanged.
constexpr Row direct(std::string_view key, Kind kind, std::string_view setting, std::string_view hf = {},
                     std::string_view why = {}) {
  return {key, setting, Effect::acts, kind, why, {}, true, hf};
}
/// The setting is derived from the value, possibly together with other values.
constexpr Row acts(std::string_view key, Kind kind, std::string_view setting, std::string_view why = {}) {
  return {key, setting, Effect::acts, kind, why};
}
constexpr Row ignored(std::string_view key, Kind kind, std::string_view why, std::string_view harmless = {}) {
  return {key, "", Effect::ignored, kind, why, harmless};
}
constexpr Row refused(std::string_view key, Kind kind, std::string_view why, std::string_view harmless = {}) {
  return {key, "", Effect::refused, kind, why, harmless};
}

inline constexpr std::string_view kUnits = "the parameters of a block are gathered, reduced and dropped as one";
inline constexpr std::string_view kPaged =
    "offloaded memory is mapped from files, which the system reads ahead and writes behind";

/// All keys, sections first.
std::span<const Row> rows();
/// By its full path; nullptr if absent.
const Row* find_row(std::string_view path);
/// Names of the keys directly below a section (empty: top level).
std::vector<std::string> names_below(std::string_view section);
/// The paths that end in this name, sections included: "offload_optimizer" -> {"zero_optimization.offload_optimizer"}.
std::vector<std::string> paths_of(std::string_view name);

}  // namespace tessera::config::deepspeed
