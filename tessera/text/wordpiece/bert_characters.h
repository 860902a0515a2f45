#pragma once
/// \file
/// BERT's handling of characters, as in Hugging Face's BertNormalizer and BertPreTokenizer, with the tables of their
/// Unicode version (characters.txt). The functions take well-formed UTF-8 and return `text` itself if nothing changes,
/// otherwise a view of `storage`, which is overwritten. ASCII costs one look-up per byte.

#include <cstdint>
#include <string>
#include <string_view>

#include <tessera/text/unicode/code_point_table.h>
#include <tessera/text/unicode/utf8.h>

namespace tessera::text {

/// Immutable.
class BertCharacters {
 public:
  enum Flag : std::uint8_t {
    removed = 1,      ///< removed by clean_text: NUL, U+FFFD, controls, formats, private and unassigned code points
    space = 2,        ///< in clean_text
    chinese = 4,      ///< CJK ideographs
    mark = 8,         ///< nonspacing
    separator = 16,   ///< white space between words
    punctuation = 32  ///< forms a word of its own
  };
  struct Character {
    std::int32_t lower = 0;  ///< added to the code point by lower-casing
    std::uint8_t flags = 0;
    bool operator<(const Character& other) const {
      return lower != other.lower ? lower < other.lower : flags < other.flags;
    }
  };

  /// The process-wide table, built on first use (thread-safe).
  static const BertCharacters& get();

  /// code_point < 0x110000.
  const Character& of(std::uint32_t code_point) const { return table_.of(code_point); }

 private:
  BertCharacters();
  CodePointTable<Character> table_;
};

/// Removes characters that are not text, and turns white space into blanks.
std::string_view clean_text(std::string_view text, std::string& storage);
/// Inserts a blank before and after every CJK ideograph.
std::string_view space_chinese(std::string_view text, std::string& storage);
/// Removes nonspacing marks. (strip_accents calls this after to_nfd().)
std::string_view remove_marks(std::string_view text, std::string& storage);
/// Lower-cases each character independently (a final sigma also becomes an ordinary one; U+0130 becomes two
/// characters).
std::string_view to_lower_case(std::string_view text, std::string& storage);

/// Calls word(std::string_view) for each word of well-formed UTF-8, in order: the text between white space, cut before
/// and after every punctuation character. Words are not empty.
template <class Word>
void for_each_bert_word(std::string_view text, Word&& word) {
  const BertCharacters& characters = BertCharacters::get();
  std::size_t begin = 0;
  const auto finish = [&](std::size_t end) {
    if (begin < end) word(text.substr(begin, end - begin));
  };
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    const std::uint8_t flags = characters.of(c.value).flags;
    if (flags & (BertCharacters::separator | BertCharacters::punctuation)) {
      finish(at);
      if (flags & BertCharacters::punctuation) word(text.substr(at, c.size));
      begin = at + c.size;
    }
    at += c.size;
  }
  finish(text.size());
}

}  // namespace tessera::text
