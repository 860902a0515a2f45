#pragma once
/// \file
/// The part of validate() for sharding.

#include <tessera/config/core/problems.h>

namespace tessera::config {

struct Resolved;

/// Checks the rules between sharding settings. Called by validate.
void validate_sharding(const Resolved& resolved, Problems& problems);

}  // namespace tessera::config
