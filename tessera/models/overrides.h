#pragma once
/// \file
/// --config_overrides: changing single members of a model configuration.

#include <string>
#include <tessera/base/value.h>

namespace tessera::models {

/// Applies "n_layer=4,n_embd=256" to a config.json value. A key must exist (else InputError with the nearest one); its new value
/// takes the type of the old (null accepts an integer, a real, true, false or text).
Value with_overrides(Value config, const std::string& overrides);

}  // namespace tessera::models
