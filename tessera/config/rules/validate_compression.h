#pragma once
/// \file
/// What must hold between --compression_training and the other settings.

#include <tessera/config/core/resolve.h>

namespace tessera::config {

/// Adds to `problems` what rounding weights and inputs to few bits cannot stand beside.
void validate_compression(const Resolved& resolved, Problems& problems);

}  // namespace tessera::config
