#pragma once
/// \file
/// Scripts of code points, as distinguished by Hugging Face's UnicodeScripts pre-tokenizer.

#include <cstdint>

namespace tessera::text {

inline constexpr std::uint8_t script_any = 0;     ///< common to all scripts
inline constexpr std::uint8_t script_none = 255;  ///< not used by any script

/// code_point < 0x110000.
std::uint8_t script_class(std::uint32_t code_point);

}  // namespace tessera::text
