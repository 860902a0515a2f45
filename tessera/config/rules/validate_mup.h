#pragma once
/// \file
/// What must hold between --use_mup, its options and the other settings.

#include <tessera/config/core/problems.h>

#include <string>

namespace tessera::config {

struct Resolved;

/// Why rates of this optimizer cannot follow the width, with the remedy; empty: they can.
std::string no_mup_beside(OptimizerKind optim);

/// Adds to `problems` what maximal update parameterization cannot stand beside.
void validate_mup(const Resolved& resolved, Problems& problems);

/// The options that are given and have nothing to act on.
void unused_mup(const Resolved& resolved, const Unused& unused);

}  // namespace tessera::config
