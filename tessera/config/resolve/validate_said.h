#pragma once
/// \file
/// The verdict of `tessera train` on what somebody has said so far: --print_config, config show and config check.

namespace tessera::config {

struct Problems;
struct Resolved;

/// As validate, but a model, a training file and an output folder that nobody has named are not missed.
void validate_said(const Resolved& resolved, Problems& problems);

}  // namespace tessera::config
