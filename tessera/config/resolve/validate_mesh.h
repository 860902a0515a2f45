#pragma once
/// \file
/// The part of validate() and unused_settings() for the mesh.

#include <tessera/config/core/problems.h>

namespace tessera::config {

struct Resolved;

/// Checks the rules between mesh settings, and reports those without effect. Called by validate and unused_settings.
void validate_mesh(const Resolved& resolved, Problems& problems);
void unused_mesh(const Resolved& resolved, const Unused& unused);

}  // namespace tessera::config
