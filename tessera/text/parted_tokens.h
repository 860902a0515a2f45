#pragma once
/// \file
/// Special tokens that people wrote in a message. Encoded as tokens they could fake turns, so they are encoded as plain
/// text. To distinguish them from the template's own tokens until encoding, a noncharacter, U+FDD0, is inserted after
/// the first character of each.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/base/value.h>

namespace tessera::text {

inline constexpr std::string_view parting = "\xEF\xB7\x90";  ///< U+FDD0; doubled where people's text contains it

/// The first of `tokens` that occurs in the texts of a value, including member names; nullptr: none. Single-character
/// tokens are ignored because they cannot be split.
const std::string* find_token(const Value& value, const std::vector<std::string>& tokens);

/// Returns the value with every such token and every U+FDD0 marked. Source positions are kept.
Value parted(const Value& value, const std::vector<std::string>& tokens);

/// The texts between the marks, in order, to be encoded separately.
std::vector<std::string> between_partings(std::string_view text);

}  // namespace tessera::text
