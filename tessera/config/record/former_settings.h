#pragma once
/// \file
/// config/record/: a configuration as text, as stored in checkpoints and passed to ranks. This header: settings that
/// differ from those stored in a checkpoint.

#include <tessera/base/value.h>

#include <string>
#include <vector>

namespace tessera {
struct RunConfig;
}

namespace tessera::config {

/// {"optimization": {"learning_rate": 5e-05, ...}, ...}: every resolved setting, by section, except those that only
/// record how the run was described (files, --fsdp ...).
Value stored_configuration(const RunConfig& config);

/// "learning_rate 1e-04 (was 5e-05)": settings that affect a run's numbers (the sections model, data and optimization,
/// ignore_data_skip, grad_compression) and differ from the stored value. Settings missing in `stored` (from an older
/// program) are skipped; `stored` may be any JSON.
std::vector<std::string> changed_since(const Value& stored, const RunConfig& now);

}  // namespace tessera::config
