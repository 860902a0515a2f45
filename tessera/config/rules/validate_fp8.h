#pragma once
/// \file
/// What must hold between --fp8_format and the other settings.

namespace tessera::config {

struct Problems;
struct Resolved;

/// Adds to `problems` what fp8 cannot be computed beside, and settings of fp8 that have nothing to act on.
void validate_fp8(const Resolved& resolved, Problems& problems);

}  // namespace tessera::config
