#pragma once
/// \file
/// Encoding one code point as UTF-8 (RFC 3629). For decoding and repair see text/unicode/utf8.h; for validation,
/// is_utf8 (text.h).

#include <cstdint>
#include <string>

namespace tessera {

/// Appends the 1-4 bytes of one code point (< 0x110000, not a surrogate: the caller checks).
void append_utf8(std::string& out, std::uint32_t code_point);

}  // namespace tessera
