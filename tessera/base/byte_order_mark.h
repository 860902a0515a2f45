#pragma once
/// \file
/// The three bytes that editors on Windows begin UTF-8 files with, which are not part of the text.

#include <string_view>

namespace tessera {

inline constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";

/// The text behind the mark; the whole text where there is none. Refers to the same bytes.
inline std::string_view without_byte_order_mark(std::string_view text) {
  return text.substr(text.starts_with(byte_order_mark) ? byte_order_mark.size() : 0);
}

}  // namespace tessera
