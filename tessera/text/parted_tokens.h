#pragma once
/// \file
/// Special tokens that people have written into a message. As tokens they would begin or end turns that nobody took;
/// so they are encoded as the text that they are. A template mixes what people say with its own tokens; a character
/// that is none, U+FDD0 behind the first character of such a token, tells them apart until the text is encoded.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/base/value.h>

namespace tessera::text {

inline constexpr std::string_view parting = "\xEF\xB7\x90";  ///< U+FDD0; one in people's text is written twice

/// The first of `tokens` in the texts of a value, its names included; nullptr: none. Tokens of one character are
/// passed over: they cannot be parted.
const std::string* find_token(const Value& value, const std::vector<std::string>& tokens);

/// The value with every such token, and every U+FDD0, marked. Places are kept.
Value parted(const Value& value, const std::vector<std::string>& tokens);

/// The text between the marks, in order: to be encoded one by one.
std::vector<std::string> between_partings(std::string_view text);

}  // namespace tessera::text
