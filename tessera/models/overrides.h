#pragma once
/// \file
/// --config_overrides applied to a model configuration.

#include <tessera/config/core/overrides.h>

namespace tessera::models {

using config::with_overrides;

}  // namespace tessera::models
