#pragma once
/// \file
/// Parses "n_layer=4,n_embd=256" or a JSON object given to a flag: --config_overrides, --lr_scheduler_kwargs.

#include <tessera/base/value.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::config {

/// The pairs in order. A value is an integer, a real, true/false, null, or otherwise text; its position names the flag.
/// Text that starts with '{' is JSON. Blanks around keys and values are ignored; empty text gives no pairs. Throws
/// InputError that quotes the part: missing '=', key or value, a key with characters other than letters, digits, '_',
/// '.', '-', or a repeated key.
std::vector<std::pair<std::string, Value>> parse_overrides(std::string_view text,
                                                           const std::string& flag = "--config_overrides");

/// Applies overrides to a config.json. A key must exist (else InputError with the nearest one) and its new value must
/// have the old one's type; an integer may replace a real, and any value may replace null.
Value with_overrides(Value config, const std::string& overrides);

}  // namespace tessera::config
