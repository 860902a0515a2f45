#pragma once
/// \file
/// Checks the settings given so far as `tessera train` would: for --print_config, config show and config check.

namespace tessera::config {

struct Problems;
struct Resolved;

/// Like validate, but a missing model, training file or output folder is not a problem.
void validate_said(const Resolved& resolved, Problems& problems);

}  // namespace tessera::config
