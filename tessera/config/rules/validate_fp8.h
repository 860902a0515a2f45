#pragma once
/// \file
/// Rules between --fp8_format and the other settings.

namespace tessera::config {

struct Problems;
struct Resolved;

/// Adds settings that fp8 cannot be combined with, and fp8 settings without effect, to `problems`.
void validate_fp8(const Resolved& resolved, Problems& problems);

}  // namespace tessera::config
