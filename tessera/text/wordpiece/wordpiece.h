#pragma once
/// \file
/// text/wordpiece/: BERT's tokenizer.
///
/// WordPiece: a word is cut into its longest prefix that is a token, then the longest continuing token ("##ing"), and
/// so on; a word that cannot be covered becomes one unknown token (Schuster and Nakajima, "Japanese and Korean voice
/// search", 2012; Hugging Face's models.WordPiece).

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tessera::text {

/// Immutable after construction.
class WordPiece {
 public:
  /// continuing_prefix: prefix of tokens inside a word. most_characters: longer words are unknown.
  WordPiece(std::int32_t unknown, std::string continuing_prefix, std::int64_t most_characters);
  void add(std::string_view spelling, std::int32_t id);

  /// Appends the ids (at least one) of a word of well-formed UTF-8. O(length x longest token).
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const;

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
  };
  struct Table {
    void add(std::string_view spelling, std::int32_t id);
    /// The longest token that is a prefix of `text`: returns its id, and its bytes in `size`; -1: none.
    std::int32_t longest(std::string_view text, std::size_t& size) const;

    std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> ids;
    std::size_t most_bytes = 0;
  };
  Table begins_, continues_;  // continues_: keys are without the prefix
  std::int32_t unknown_;
  std::string prefix_;
  std::int64_t most_characters_;
};

}  // namespace tessera::text
