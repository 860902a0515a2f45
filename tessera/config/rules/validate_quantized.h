#pragma once
/// \file
/// What must hold between --load_in_4bit, --load_in_8bit and the other settings.

#include <tessera/config/core/problems.h>

namespace tessera::config {

struct Resolved;

/// Adds to `problems` what quantized weights cannot stand beside.
void validate_quantized(const Resolved& resolved, Problems& problems);

/// Settings of quantized weights that have nothing to act on.
void unused_quantized(const Resolved& resolved, const Unused& unused);

}  // namespace tessera::config
