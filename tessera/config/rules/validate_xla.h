#pragma once
/// \file
/// Rules between --device xla and the other settings.

#include <tessera/config/core/problems.h>

namespace tessera::config {

struct Resolved;

/// Adds every setting that a compiled step does not support to `problems`.
void validate_xla(const Resolved& resolved, Problems& problems);

/// Reports given options that have no effect.
void unused_xla(const Resolved& resolved, const Unused& unused);

}  // namespace tessera::config
