#pragma once
/// \file
/// "n_layer=4,n_embd=256" or a JSON object as the value of a flag: --config_overrides, --lr_scheduler_kwargs.

#include <tessera/base/value.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::config {

/// The pairs in their order. A value is an integer, a real, true/false, null, or else text; its position names the
/// flag. Text that begins with '{' is JSON. Blanks around keys and values do not count; empty text gives no pairs.
/// Throws InputError that quotes the part: no '=', no key, a key of other characters than letters, digits, '_', '.',
/// '-', no value, a key given twice.
std::vector<std::pair<std::string, Value>> parse_overrides(std::string_view text,
                                                           const std::string& flag = "--config_overrides");

/// Applies them to a config.json. A key must exist (else InputError with the nearest one) and its new value be of the
/// old one's kind: an integer may stand for a real, anything for null.
Value with_overrides(Value config, const std::string& overrides);

}  // namespace tessera::config
