#pragma once
/// \file
/// Decodes UTF-8 one code point at a time, and repairs ill-formed text.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <tessera/base/utf8.h>

namespace tessera::text {

struct CodePoint {
  std::uint32_t value;
  std::uint32_t size;  ///< bytes
};

/// The code point at text[at]. `text` must be well-formed and `at` the start of a code point.
inline CodePoint code_point_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[at + i])); };
  const std::uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {(first & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (first < 0xF0) return {(first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

/// `text` with every maximal ill-formed piece replaced by U+FFFD, as recommended by Unicode 3.9 and implemented by
/// Python's bytes.decode("utf-8", errors="replace").
std::string replace_ill_formed(std::string_view text);

}  // namespace tessera::text
