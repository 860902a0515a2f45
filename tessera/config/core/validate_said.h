#pragma once
/// \file
/// The verdict of `tessera train` on what somebody has said so far: --print_config, config show and config check.

#include <tessera/config/core/resolve.h>

namespace tessera::config {

/// As validate, but a model, a training file and an output folder that nobody has named are not missed.
void validate_said(const Resolved& resolved, Problems& problems);

}  // namespace tessera::config
