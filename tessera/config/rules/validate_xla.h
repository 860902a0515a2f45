#pragma once
/// \file
/// What --device xla cannot stand beside, and what acts with it alone.

#include <tessera/config/core/problems.h>

namespace tessera::config {

struct Resolved;

/// Adds to `problems` every setting that a compiled step does not have.
void validate_xla(const Resolved& resolved, Problems& problems);

/// The options that are given and have nothing to act on.
void unused_xla(const Resolved& resolved, const Unused& unused);

}  // namespace tessera::config
