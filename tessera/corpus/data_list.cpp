#include <tessera/corpus/data_list.h>

#include <algorithm>
#include <cmath>

#include <tessera/base/error.h>
#include <tessera/base/file.h>

namespace tessera::corpus {
namespace {

bool separates(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == ','; }

struct Word {
  std::string text;
  bool in_quotes = false;  ///< a place, even if it looks like a number
};

std::vector<Word> words_of(std::string_view text) {
  std::vector<Word> words;
  for (std::size_t at = 0; at < text.size();) {
    if (separates(text[at])) {
      ++at;
      continue;
    }
    if (text[at] == '\'' || text[at] == '"') {
      const std::size_t end = text.find(text[at], at + 1);
      if (end == std::string_view::npos)
        throw InputError(concat("the list of files '", text, "' has an unclosed quote: ", text.substr(at)));
      words.push_back({std::string(text.substr(at + 1, end - at - 1)), true});
      at = end + 1;
      continue;
    }
    const std::size_t begin = at;
    while (at < text.size() && !separates(text[at])) ++at;
    words.push_back({std::string(text.substr(begin, at - begin)), false});
  }
  return words;
}

std::optional<double> weight_of(const Word& word) {
  if (word.in_quotes || path_exists(word.text)) return std::nullopt;
  return parse_real(word.text);
}

std::vector<DataPart> parts_of(std::string_view list) {
  try {
    return parse_data_list(list);
  } catch (const InputError&) {
    return {};
  }
}

bool names_tokens(const std::string& place) {
  const std::string name = to_lower(place);
  return name.ends_with(".bin") || name.ends_with(".idx");
}

bool names_text(const std::string& place) {
  const std::string name = to_lower(place);
  return name.ends_with(".txt") || name.ends_with(".text") || name.find(".txt.") != std::string::npos ||
         name.find(".text.") != std::string::npos;
}

}  // namespace

bool may_hold_examples(std::string_view list) {
  const auto places = places_of(parts_of(list));
  return !std::all_of(places.begin(), places.end(),
                      [](const std::string& place) { return names_tokens(place) || names_text(place); });
}

bool holds_tokens_only(std::string_view list) {
  const auto places = places_of(parts_of(list));
  return !places.empty() && std::all_of(places.begin(), places.end(), names_tokens);
}

bool has_weights(std::string_view list) {
  const auto parts = parts_of(list);
  return !parts.empty() && parts.front().weight > 0;
}

std::vector<DataPart> parse_data_list(std::string_view text) {
  const std::string whole = trim(text);
  if (whole.empty()) return {};
  if (path_exists(whole)) return {{0, {whole}}};
  std::vector<DataPart> parts;
  const std::vector<Word> words = words_of(text);
  const bool weighted = !words.empty() && weight_of(words.front()).has_value();
  if (!weighted) parts.push_back({});
  for (const Word& word : words) {
    const auto weight = weight_of(word);
    if (!weight) {
      if (word.text.empty()) throw InputError(concat("the list of files '", text, "' names an empty path"));
      parts.back().places.push_back(word.text);
      continue;
    }
    if (!weighted)
      throw InputError(concat("the list of files '", text, "' has a weight, ", word.text,
                              ", but begins without one: give every part a weight (0.7 a.jsonl 0.3 b), or none"));
    if (!(*weight > 0) || !std::isfinite(*weight))
      throw InputError(concat("the list of files '", text, "': the weight ", word.text, " is not above 0"));
    if (!parts.empty() && parts.back().places.empty())
      throw InputError(concat("the list of files '", text, "': a weight is followed by ", word.text,
                              ", another weight; each must be followed by a file, folder or pattern"));
    parts.push_back({*weight, {}});
  }
  if (parts.back().places.empty())
    throw InputError(concat("the list of files '", text, "' names no file after its last weight"));
  return parts;
}

std::string quoted(const std::string& word) {
  const bool plain = !word.empty() && std::none_of(word.begin(), word.end(),
                                                   [](char c) { return separates(c) || c == '\'' || c == '"'; });
  if (plain) return word;
  const char quote = word.find('\'') == std::string::npos ? '\'' : '"';
  return concat(quote, word, quote);
}

std::vector<std::string> places_of(const std::vector<DataPart>& parts) {
  std::vector<std::string> places;
  for (const DataPart& part : parts) places.insert(places.end(), part.places.begin(), part.places.end());
  return places;
}

bool is_pattern(const std::string& place) {
  return place.find_first_of("*?[") != std::string::npos && !path_exists(place);
}

}  // namespace tessera::corpus
