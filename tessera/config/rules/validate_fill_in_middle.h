#pragma once
/// \file
/// What must hold between --fim_data, its options and the other settings.

#include <tessera/config/core/problems.h>

namespace tessera::config {

struct Resolved;

/// Adds to `problems` what texts cannot be rearranged beside.
void validate_fill_in_middle(const Resolved& resolved, Problems& problems);

/// The options that are given and have nothing to act on.
void unused_fill_in_middle(const Resolved& resolved, const Unused& unused);

}  // namespace tessera::config
