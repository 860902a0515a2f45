#pragma once
/// \file
/// Rules between --compression_training and the other settings.

namespace tessera::config {

struct Problems;
struct Resolved;

/// Adds settings that low-bit weights and inputs cannot be combined with to `problems`.
void validate_compression(const Resolved& resolved, Problems& problems);

}  // namespace tessera::config
