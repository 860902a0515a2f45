#pragma once
/// \file
/// The UTF-8 byte order mark, which Windows editors write at the start of a file and which is not part of the text.

#include <string_view>

namespace tessera {

inline constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";

/// Returns the text after the mark, or the whole text if it has none. Refers to the same bytes.
inline std::string_view without_byte_order_mark(std::string_view text) {
  return text.substr(text.starts_with(byte_order_mark) ? byte_order_mark.size() : 0);
}

}  // namespace tessera
