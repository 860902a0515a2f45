#pragma once
/// \file
/// What must hold between --compression_training and the other settings.

namespace tessera::config {

struct Problems;
struct Resolved;

/// Adds to `problems` what rounding weights and inputs to few bits cannot stand beside.
void validate_compression(const Resolved& resolved, Problems& problems);

}  // namespace tessera::config
