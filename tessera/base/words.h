#pragma once
/// \file
/// Enumerations that people write as words (settings, names of strategies). Each has one table of words, used to parse
/// and print it and to list it in help texts and error messages:
///
///   enum class NanPolicy : unsigned char { stop, skip };
///   const WordTable& words_of(NanPolicy);  // {"stop", "skip"}

#include <tessera/base/text.h>

#include <concepts>
#include <cstddef>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tessera {

/// Another system's name for one of our words.
struct Synonym {
  std::string_view theirs, ours;  ///< `theirs` in lower case; `ours` is in the word table
};

/// The words of one enumeration: words[i] is the word for the enumerator with value i.
struct WordTable {
  std::vector<std::string> words;      ///< by value, in lower case; messages and help list them
  std::vector<Synonym> synonyms = {};  ///< accepted as input, never printed

  /// The value of a word or synonym, case-insensitive (accelerate writes FULL_SHARD, Hugging Face full_shard).
  std::optional<unsigned char> find(std::string_view text) const;
};

template <class E>
concept Worded = std::is_enum_v<E> && sizeof(E) == 1 && requires(E value) {
  { words_of(value) } -> std::same_as<const WordTable&>;
};  ///< a one-byte enumeration with values 0, 1, 2 ... and a table words_of()

template <Worded E>
const std::string& word_of(E value) {
  return words_of(value).words[static_cast<std::size_t>(value)];
}  ///< the enumerator's word; `value` must be an enumerator

template <Worded E>
std::optional<E> parse_word(std::string_view text) {
  const auto value = words_of(E{}).find(text);
  return value ? std::optional(static_cast<E>(*value)) : std::nullopt;
}  ///< nullopt for an unknown word; accepts synonyms and any case

template <Worded E>
std::ostream& operator<<(std::ostream& out, E value) {
  return out << word_of(value);
}  ///< prints word_of(value)

}  // namespace tessera
