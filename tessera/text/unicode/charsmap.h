#pragma once
/// \file
/// SentencePiece's precompiled charsmap: replacements of pieces of text, found in a double-array trie (the layout of
/// Darts-clone, which is the file format). Text is replaced as Hugging Face's Precompiled normalizer does it, which
/// differs from SentencePiece where characters carry marks.

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
  /// `blob`: the size of the trie in bytes (little-endian, 32 bits), the trie (32-bit units), replacements that end
  /// with NUL. Nothing in it is trusted. Throws InputError beginning with `where`.
  Charsmap(std::string_view blob, const std::string& where);

  /// Replaces in well-formed UTF-8: a grapheme of at most five bytes by what its shortest beginning in the map is
  /// replaced by; else each of its characters. Returns `text` itself where nothing changes, else a view of `storage`,
  /// which is overwritten.
  std::string_view apply(std::string_view text, std::string& storage) const;

 private:
  std::optional<std::string_view> replacement(std::string_view piece) const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;
  std::array<bool, 128> plain_{};  ///< ASCII that stays as it is unless a mark follows
};

/// The base64 text of a tokenizer.json as bytes (RFC 4648, padded). Throws InputError beginning with `where`.
std::string decode_base64(std::string_view text, const std::string& where);
std::string encode_base64(std::string_view bytes);

}  // namespace tessera::text
