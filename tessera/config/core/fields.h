#pragma once
/// \file
/// The table of settings: name, section, place in RunConfig, rule, help. Flags, --help, --print_config, range checks
/// and defaults are generated from it, so adding a setting takes one member of a section and one row in fields.cpp.

#include <tessera/base/value.h>
#include <tessera/base/words.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tessera {
struct RunConfig;
}

namespace tessera::config {

/// The group under which a setting is shown; also the sections of --print_config.
enum class Section { files, model, data, optimization, parallel, sharding, output };
inline constexpr Section all_sections[] = {Section::files,    Section::model,    Section::data,  Section::optimization,
                                           Section::parallel, Section::sharding, Section::output};
std::string_view section_key(Section section);    ///< "optimization"
std::string_view section_title(Section section);  ///< "Optimisation"

/// A reference to an enumerator in a RunConfig, with the words of its enumeration.
struct WordSlot {
  unsigned char* value;
  const WordTable* words;
};

/// Accessor of the setting in a RunConfig; its alternative determines the setting's type.
using Access = std::variant<std::string& (*)(RunConfig&), std::int64_t& (*)(RunConfig&), double& (*)(RunConfig&),
                            bool& (*)(RunConfig&), WordSlot (*)(RunConfig&)>;

/// Values that a user may give. The default may be outside the range (0 = "not given").
struct Rule {
  double least = -std::numeric_limits<double>::infinity(), most = std::numeric_limits<double>::infinity();
  bool above_least = false, below_most = false;  ///< the bound itself is excluded
  bool steps_or_share = false;                   ///< a whole number from 1 on, or below 1 a share of all steps
  /// The allowed words, case-insensitive; empty: any text. An enumeration's words come first. Any further words are
  /// replaced by a different setting when the configuration is resolved (--strategy auto).
  std::vector<std::string> words;
  std::vector<Synonym> synonyms;  ///< another system's word -> ours
  bool several = false;  ///< several of the words may be given, in any order: "csv,tensorboard"; "none" for none
  std::string_view shown_as = {};  ///< placeholder in --help, such as "FILE"; empty: chosen by kind

  std::string describe() const;  ///< "at least 1", "one of linear, cosine"; empty: anything
};

struct Field {
  std::string_view name;  ///< Hugging Face's name where one exists
  Section section;
  Access access;
  Rule rule;
  std::string_view help;
  std::string_view environment = {};  ///< environment variable that sets it when no flag does

  bool is_boolean() const { return std::holds_alternative<bool& (*)(RunConfig&)>(access); }
  std::string placeholder() const;  ///< "N", "X", "FILE", "linear|cosine"
  Value get(const RunConfig& config) const;
  /// Parses `text` by type and rule and stores it. Returns an error text, or nullopt on success. Booleans:
  /// yes/true/t/y/1/on and no/false/f/n/0/off, any case (as transformers' HfArgumentParser and accelerate).
  std::optional<std::string> set(RunConfig& config, std::string_view text) const;
};

/// All settings, section by section.
std::span<const Field> fields();
/// The row of that name (underscores), or nullptr.
const Field* find_field(std::string_view name);
/// Other names of settings (older flags, other systems' flags) -> ours: "evaluation_strategy" -> "eval_strategy".
std::span<const std::pair<std::string_view, std::string_view>> aliases();

/// Removes '_' between digits, which Python's int() and float() accept: 10_000 becomes 10000.
std::string ungrouped(std::string_view text);
/// "true", "no"... as a boolean; nullopt for anything else.
std::optional<bool> parse_bool(std::string_view text);

}  // namespace tessera::config
