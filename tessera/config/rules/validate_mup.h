#pragma once
/// \file
/// Rules between --use_mup, its options and the other settings.

#include <tessera/config/core/problems.h>

#include <string>

namespace tessera::config {

struct Resolved;

/// The reason why this optimizer's rates cannot scale with the width, and the remedy; empty: they can.
std::string no_mup_beside(OptimizerKind optim);

/// Adds settings that maximal update parameterization cannot be combined with to `problems`.
void validate_mup(const Resolved& resolved, Problems& problems);

/// Reports given options that have no effect.
void unused_mup(const Resolved& resolved, const Unused& unused);

}  // namespace tessera::config
