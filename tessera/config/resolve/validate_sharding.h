#pragma once
/// \file
/// The part of validate() that is about sharding.

#include <tessera/config/core/problems.h>

namespace tessera::config {

struct Resolved;

/// The rules between sharding settings. Called by validate.
void validate_sharding(const Resolved& resolved, Problems& problems);

}  // namespace tessera::config
