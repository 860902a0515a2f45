#pragma once
/// \file
/// The table of DeepSpeed's keys, as the reader needs it: what deepspeed_rows() says, and the kinds of the values.

#include <tessera/config/core/translation.h>

#include <span>
#include <string_view>

namespace tessera::config::deepspeed {

enum class Kind {
  flag,     ///< true or false
  whole,    ///< 0, 1, ..., also 5e8
  integer,  ///< also negative
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
  /// Ignored, refused: the values, separated by '|', that ask for what happens anyway, of which nothing is said. Of a
  /// section: the name of its switch ("enabled": it is off unless it says "enabled": true; "enabled*": unless something
  /// in it does).
  std::string_view harmless = {};
  bool direct = false;       ///< acts: the setting gets the value as it stands
  std::string_view hf = {};  ///< what Hugging Face's complaints call the setting
};

/// How a row is written down.
/// A section that is what its keys are.
constexpr Row group(std::string_view key) { return {key, "", Effect::acts, Kind::section}; }
/// The setting gets the value as it stands.
constexpr Row direct(std::string_view key, Kind kind, std::string_view setting, std::string_view hf = {},
                     std::string_view why = {}) {
  return {key, setting, Effect::acts, kind, why, {}, true, hf};
}
/// The setting follows from the value, and perhaps from others.
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
/// By its whole path; nullptr when there is none.
const Row* find_row(std::string_view path);
/// Names of the keys right below a section (empty: top level).
std::vector<std::string> names_below(std::string_view section);
/// The paths at which a name stands, with sections: "offload_optimizer" -> {"zero_optimization.offload_optimizer"}.
std::vector<std::string> paths_of(std::string_view name);

}  // namespace tessera::config::deepspeed
