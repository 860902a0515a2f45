#pragma once
/// \file
/// The part of validate() and unused_settings() that is about the mesh.

#include <tessera/config/core/problems.h>

namespace tessera::config {

struct Resolved;

/// The rules between these settings, those that have no effect. Called by validate and unused_settings.
void validate_mesh(const Resolved& resolved, Problems& problems);
void unused_mesh(const Resolved& resolved, const Unused& unused);

}  // namespace tessera::config
