#pragma once
/// \file
/// Rules between --load_in_4bit, --load_in_8bit and the other settings.

#include <tessera/config/core/problems.h>

namespace tessera::config {

struct Resolved;

/// Adds settings that quantized weights cannot be combined with to `problems`.
void validate_quantized(const Resolved& resolved, Problems& problems);

/// Reports settings of quantized weights that have no effect.
void unused_quantized(const Resolved& resolved, const Unused& unused);

}  // namespace tessera::config
