// Parsing, checking and printing of one setting; the table itself is in fields.cpp.

#include <tessera/config/core/fields.h>
#include <tessera/config/core/run_config.h>

#include <tessera/base/text.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

namespace tessera::config {
namespace {

using Strings = std::vector<std::string>;

std::string number(double value) { return format_real(value); }

template <class T>
Value value_of(const T& slot) {
  return Value::of(slot);
}
Value value_of(WordSlot slot) { return Value::of(slot.words->words.at(*slot.value)); }

struct Setter {
  const Rule& rule;
  std::string_view text;

  std::optional<std::string> out_of_range(double value) const {
    const bool ok = (rule.above_least ? value > rule.least : value >= rule.least) &&
                    (rule.below_most ? value < rule.most : value <= rule.most);
    return ok ? std::nullopt : std::optional(concat("is ", text, "; it must be ", rule.describe()));
  }

  std::optional<std::string> unknown_word() const {
    const auto near = nearest(to_lower(text), rule.words);
    return concat("is '", text, "'; it must be ", rule.describe(), near ? concat(" (did you mean ", *near, "?)") : "");
  }

  /// Stores the words in the table's order, so that equal choices are written equally; "none" next to others is
  /// dropped.
  std::optional<std::string> set_several(std::string& slot) const {
    std::string list = to_lower(text);
    std::replace(list.begin(), list.end(), ' ', ',');
    std::set<std::string> given;
    for (const std::string& word : split(list, ',')) {
      if (word.empty()) continue;
      const auto all = std::find_if(rule.synonyms.begin(), rule.synonyms.end(),
                                    [&](const Synonym& synonym) { return synonym.theirs == word; });
      for (const std::string& ours : all == rule.synonyms.end() ? Strings{word} : split(all->ours, ',')) {
        if (std::find(rule.words.begin(), rule.words.end(), ours) == rule.words.end()) return unknown_word();
        given.insert(ours);
      }
    }
    given.erase("none");
    Strings chosen;
    std::copy_if(rule.words.begin(), rule.words.end(), std::back_inserter(chosen),
                 [&](const std::string& word) { return given.contains(word); });
    slot = chosen.empty() ? "none" : join(chosen, ",");
    return std::nullopt;
  }

  std::optional<std::string> operator()(std::string& slot) const {
    if (rule.several) return set_several(slot);
    std::string word(text);
    if (!rule.words.empty()) word = to_lower(word);
    for (const auto& [theirs, ours] : rule.synonyms)
      if (word == theirs) {
        word = ours;
        break;
      }
    if (!rule.words.empty() && std::find(rule.words.begin(), rule.words.end(), word) == rule.words.end())
      return unknown_word();
    slot = std::move(word);
    return std::nullopt;
  }

  std::optional<std::string> operator()(WordSlot slot) const {
    if (const auto value = slot.words->find(text)) {
      *slot.value = *value;
      return std::nullopt;
    }
    // A word of the rule without an enumerator: resolving replaces it before anyone reads the value.
    const auto& words = rule.words;
    const auto found = std::find(words.begin(), words.end(), to_lower(text));
    if (found == words.end()) return unknown_word();
    *slot.value = static_cast<unsigned char>(found - words.begin());
    return std::nullopt;
  }

  std::optional<std::string> operator()(std::int64_t& slot) const {
    const auto value = parse_int(ungrouped(text));
    if (!value) return concat("is '", text, "'; it must be an integer");
    auto problem = out_of_range(static_cast<double>(*value));
    if (!problem) slot = *value;
    return problem;
  }

  std::optional<std::string> operator()(double& slot) const {
    const auto value = parse_real(ungrouped(text));
    if (!value || !std::isfinite(*value))
      return concat("is '", text, "'; it must be a ", value ? "finite " : "", "number");
    auto problem = out_of_range(*value);
    if (!problem && rule.steps_or_share && *value > 1 && std::trunc(*value) != *value)
      problem = concat("is ", text, "; it must be ", rule.describe());
    if (!problem) slot = *value;
    return problem;
  }

  std::optional<std::string> operator()(bool& slot) const {
    const auto value = parse_bool(text);
    if (!value) return concat("is '", text, "'; it must be true or false");
    slot = *value;
    return std::nullopt;
  }
};

}  // namespace

std::string_view section_key(Section section) {
  static constexpr std::string_view keys[] = {"files",    "model",    "data",  "optimization",
                                              "parallel", "sharding", "output"};
  return keys[static_cast<std::size_t>(section)];
}

std::string_view section_title(Section section) {
  static constexpr std::string_view titles[] = {"Configuration files", "Model",    "Data",  "Optimisation",
                                                "Parallelism",         "Sharding", "Output"};
  return titles[static_cast<std::size_t>(section)];
}

std::string Rule::describe() const {
  if (!words.empty()) return concat(several ? "one or several of " : "one of ", join(words));
  if (steps_or_share) return "a whole number of steps, or, between 0 and 1, a share of all steps";
  std::vector<std::string> parts;
  if (std::isfinite(least)) parts.push_back(concat(above_least ? "more than " : "at least ", number(least)));
  if (std::isfinite(most)) parts.push_back(concat(below_most ? "less than " : "at most ", number(most)));
  return join(parts, " and ");
}

std::string Field::placeholder() const {
  if (!rule.shown_as.empty()) return std::string(rule.shown_as);
  if (!rule.words.empty()) return join(rule.words, "|");
  if (rule.steps_or_share) return "N|SHARE";
  static constexpr std::string_view by_kind[] = {"TEXT", "N", "X", "", "WORD"};
  return std::string(by_kind[access.index()]);
}

Value Field::get(const RunConfig& config) const {
  RunConfig copy = config;  // accessors return mutable references
  if (rule.steps_or_share) {
    const double value = std::get<double& (*)(RunConfig&)>(access)(copy);
    return std::trunc(value) == value ? Value::of(static_cast<std::int64_t>(value)) : Value::of(value);
  }
  if (const auto* word = std::get_if<WordSlot (*)(RunConfig&)>(&access)) {
    return Value::of(rule.words[*(*word)(copy).value]);
  }
  return std::visit([&](auto place) { return value_of(place(copy)); }, access);
}

std::optional<std::string> Field::set(RunConfig& config, std::string_view text) const {
  return std::visit([&](auto place) { return Setter{rule, text}(place(config)); }, access);
}

std::string ungrouped(std::string_view text) {
  std::string out;
  const auto digit = [&](std::size_t i) { return i < text.size() && text[i] >= '0' && text[i] <= '9'; };
  for (std::size_t i = 0; i < text.size(); ++i)
    if (text[i] != '_' || i == 0 || !digit(i - 1) || !digit(i + 1)) out += text[i];
  return out;
}

std::optional<bool> parse_bool(std::string_view text) {
  const std::string word = to_lower(text);
  for (const std::string_view yes : {"true", "yes", "t", "y", "1", "on"})
    if (word == yes) return true;
  for (const std::string_view no : {"false", "no", "f", "n", "0", "off"})
    if (word == no) return false;
  return std::nullopt;
}

}  // namespace tessera::config
