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

}  // namespace tessera::config
