#pragma once
/// \file
/// The printable alphabet in which byte-level BPE spells bytes (GPT-2's bytes_to_unicode): bytes 33-126, 161-172 and
/// 174-255 represent themselves; the other 68 are mapped to U+0100 onward in byte order. Tokens in tokenizer.json are
/// spelt in it.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::text {

class ByteAlphabet {
 public:
  static const ByteAlphabet& get();
  std::uint32_t code_point(unsigned char byte) const { return of_byte_[byte]; }
  /// Returns the spelling (UTF-8) of bytes.
  std::string spell(std::string_view bytes) const;
  /// Returns the bytes of a spelling; nullopt if it has a character outside the alphabet. `spelling` must be
  /// well-formed UTF-8.
  std::optional<std::string> bytes(std::string_view spelling) const;

 private:
  ByteAlphabet();
  std::array<std::uint32_t, 256> of_byte_{};
  std::array<std::int16_t, 0x144> to_byte_{};  ///< by code point; -1: none
};

}  // namespace tessera::text
