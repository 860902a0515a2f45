#pragma once
/// \file
/// Added tokens (special or not), which are found literally in the text before it is cut into words.

#include <tessera/text/normalizer.h>

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tessera::text {

struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool single_word = false;  ///< matched only without a word character (\w) before or after it
  bool lstrip = false;       ///< absorbs blanks before it
  bool rstrip = false;       ///< absorbs blanks after it
  bool normalized = false;   ///< matched in its normalized form, in the normalized text, after all other tokens
  bool special = false;
};

/// A piece of text: plain text (id < 0) or one added token.
struct Segment {
  std::string_view text;
  std::int32_t id = -1;
  bool at_start = false;  ///< whether it begins at the start of the whole text
};

/// Immutable.
class AddedTokens {
 public:
  AddedTokens() = default;
  /// Throws InputError when two tokens have the same content or the same normalized form.
  AddedTokens(const std::vector<AddedToken>& tokens, const Normalizer& normalizer);

  /// Normalizes well-formed UTF-8 and cuts it into segments, leftmost and longest match first, as Hugging Face does:
  /// tokens with normalized = false are matched in the original text; the pieces between them are normalized
  /// separately, and the other tokens are matched there. Empty pieces are dropped. Segments refer to `text` or
  /// `storage`.
  std::vector<Segment> split(std::string_view text, const Normalizer& normalizer,
                             std::deque<std::string>& storage) const;

 private:
  struct Flags {
    std::int32_t id = 0;
    bool single_word = false, lstrip = false, rstrip = false;
  };
  class Matcher {
   public:
    void add(const std::string& content, const AddedToken& token);
    void split(std::string_view text, std::vector<Segment>& out) const;
    bool empty() const { return tokens_.empty(); }

   private:
    /// The longest token at text[at]; returns its size, or 0.
    std::size_t longest(std::string_view text, std::size_t at, const Flags** flags) const;

    struct Hash {
      using is_transparent = void;
      std::size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
    };
    std::unordered_map<std::string, Flags, Hash, std::equal_to<>> tokens_;
    std::array<std::vector<std::size_t>, 256> sizes_;  ///< token sizes by first byte, descending, distinct
    std::array<bool, 256> is_first_{};
  };
  Matcher first_, second_;
};

}  // namespace tessera::text
