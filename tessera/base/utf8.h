#pragma once
/// \file
/// Writing one code point as UTF-8 (RFC 3629). Reading and repair are text/unicode/utf8.h's; the check is is_utf8
/// (text.h).

#include <cstdint>
#include <string>

namespace tessera {

/// Appends the 1-4 bytes of one code point (< 0x110000, no surrogate: the caller has checked).
void append_utf8(std::string& out, std::uint32_t code_point);

}  // namespace tessera
