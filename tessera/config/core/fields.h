#pragma once
/// \file
/// The one table of settings: name, section, place in RunConfig, rule, help. Flags, --help, --print_config, range
/// checks and defaults are all read from it, so a new setting is one member of a section and one row in fields.cpp.

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

/// Where a setting is shown; also the sections of --print_config.
enum class Section { files, model, data, optimization, parallel, sharding, output };
inline constexpr Section all_sections[] = {Section::files,    Section::model,    Section::data,  Section::optimization,
                                           Section::parallel, Section::sharding, Section::output};
std::string_view section_key(Section section);    ///< "optimization"
std::string_view section_title(Section section);  ///< "Optimisation"

/// An enumerator inside a RunConfig, as its value, and the words of its enumeration.
struct WordSlot {
  unsigned char* value;
  const WordTable* words;
};

/// Finds the setting inside a RunConfig; its alternative is the kind of the setting.
using Access = std::variant<std::string& (*)(RunConfig&), std::int64_t& (*)(RunConfig&), double& (*)(RunConfig&),
                            bool& (*)(RunConfig&), WordSlot (*)(RunConfig&)>;

/// Which values a user may give. The default may lie outside (0 = "not given").
struct Rule {
  double least = -std::numeric_limits<double>::infinity(), most = std::numeric_limits<double>::infinity();
  bool above_least = false, below_most = false;  ///< the bound itself is excluded
  bool steps_or_share = false;  ///< a real that is a whole number from 1 on, and below 1 a share of all steps
  /// The allowed words, in any case; empty: any text. Those of an enumeration come first; what follows them is no
  /// enumerator, and resolving turns it into another setting (--strategy auto).
  std::vector<std::string> words;
  std::vector<Synonym> synonyms;  ///< another system's word -> ours
  bool several = false;  ///< a text of several of them, in any order: "csv,tensorboard"; none is written "none"
  std::string_view shown_as = {};  ///< "FILE" in --help; empty: by kind

  std::string describe() const;  ///< "at least 1", "one of linear, cosine"; empty: anything
};

struct Field {
  std::string_view name;  ///< Hugging Face's where there is one
  Section section;
  Access access;
  Rule rule;
  std::string_view help;
  std::string_view environment = {};  ///< a variable that sets it when no flag does

  bool is_boolean() const { return std::holds_alternative<bool& (*)(RunConfig&)>(access); }
  std::string placeholder() const;  ///< "N", "X", "FILE", "linear|cosine"
  Value get(const RunConfig& config) const;
  /// Reads `text` by kind and rule and stores it. Returns what is wrong with it, or nothing. Booleans:
  /// yes/true/t/y/1/on and no/false/f/n/0/off, any case (transformers' HfArgumentParser and accelerate).
  std::optional<std::string> set(RunConfig& config, std::string_view text) const;
};

/// All settings, section by section.
std::span<const Field> fields();
/// The row of that name (underscores), or nullptr.
const Field* find_field(std::string_view name);
/// Other names of settings: older or other systems' flags -> ours ("evaluation_strategy" -> "eval_strategy").
std::span<const std::pair<std::string_view, std::string_view>> aliases();

/// The text of a number without the '_' between digits, which Python's int() and float() pass over: 10_000 is 10000.
std::string ungrouped(std::string_view text);
/// "true", "no"... as a boolean; nullopt for anything else.
std::optional<bool> parse_bool(std::string_view text);

}  // namespace tessera::config
