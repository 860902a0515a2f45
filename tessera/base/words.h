#pragma once
/// \file
/// Enumerations that people write as words (settings, names of strategies). Each has one table of its words, from which
/// it is read, printed, listed in help texts and put into error messages:
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

/// Another system's word for one of ours.
struct Synonym {
  std::string_view theirs, ours;
};

/// The words of one enumeration: words[i] is what people write for the enumerator of value i.
struct WordTable {
  std::vector<std::string> words;
  std::vector<Synonym> synonyms = {};

  /// The value of a word or synonym, in any case (accelerate writes FULL_SHARD, Hugging Face full_shard).
  std::optional<unsigned char> find(std::string_view text) const;
};

template <class E>
concept Worded = std::is_enum_v<E> && sizeof(E) == 1 && requires(E value) {
  { words_of(value) } -> std::same_as<const WordTable&>;
};

template <Worded E>
const std::string& word_of(E value) {
  return words_of(value).words[static_cast<std::size_t>(value)];
}

template <Worded E>
std::optional<E> parse_word(std::string_view text) {
  const auto value = words_of(E{}).find(text);
  return value ? std::optional(static_cast<E>(*value)) : std::nullopt;
}

template <Worded E>
std::ostream& operator<<(std::ostream& out, E value) {
  return out << word_of(value);
}

}  // namespace tessera
