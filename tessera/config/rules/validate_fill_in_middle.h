#pragma once
/// \file
/// Rules between --fim_data, its options and the other settings.

#include <tessera/config/core/problems.h>

namespace tessera::config {

struct Resolved;

/// Adds settings that --fim_data cannot be combined with to `problems`.
void validate_fill_in_middle(const Resolved& resolved, Problems& problems);

/// Reports given options that have no effect.
void unused_fill_in_middle(const Resolved& resolved, const Unused& unused);

}  // namespace tessera::config
