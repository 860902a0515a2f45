#pragma once
/// \file
/// SentencePiece's precompiled charsmap: replacements of pieces of text, stored in a double-array trie (the layout of
/// Darts-clone, which is the file format). Text is replaced as by Hugging Face's Precompiled normalizer, which differs
/// from SentencePiece for characters with combining marks.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::text {

/// Immutable: any number of threads may use one object at the same time.
class Charsmap {
 public:
  /// `blob`: the size of the trie in bytes (little-endian, 32 bits), the trie (32-bit units), and NUL-terminated
  /// replacements. The contents are not trusted. Throws InputError beginning with `where`.
  Charsmap(std::string_view blob, const std::string& where);

  /// Applies the replacements to well-formed UTF-8. A grapheme of at most five bytes is replaced as a whole if one of
  /// its prefixes is in the map (the shortest one is used); otherwise each of its characters is looked up. Returns
  /// `text` itself if nothing changes, otherwise a view of `storage`, which is overwritten.
  std::string_view apply(std::string_view text, std::string& storage) const;

 private:
  std::optional<std::string_view> replacement(std::string_view piece) const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;
  std::array<bool, 128> plain_{};  ///< ASCII characters that are unchanged unless a mark follows
};

/// Decodes the base64 text of a tokenizer.json (RFC 4648, padded). Throws InputError beginning with `where`.
std::string decode_base64(std::string_view text, const std::string& where);
std::string encode_base64(std::string_view bytes);

}  // namespace tessera::text
