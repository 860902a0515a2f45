#pragma once
/// \file
/// --config_overrides applied to a model configuration.

#include <tessera/base/value.h>
#include <string>

namespace tessera::models {

/// Applies "n_layer=4,n_embd=256" (syntax: tessera/config/core/overrides.h) to a config.json value. A key must exist
/// (else InputError with the nearest one) and its new value be of the old one's kind: an integer may stand for a real,
/// anything for null.
Value with_overrides(Value config, const std::string& overrides);

}  // namespace tessera::models
