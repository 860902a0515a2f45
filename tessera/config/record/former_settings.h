#pragma once
/// \file
/// config/record/: a configuration as text: as a checkpoint keeps it, and as ranks are given it. This header: what has
/// changed since a checkpoint was written.

#include <tessera/base/value.h>

#include <string>
#include <vector>

namespace tessera {
struct RunConfig;
}

namespace tessera::config {

/// {"optimization": {"learning_rate": 5e-05, ...}, ...}: every setting as it was resolved, by section, but those that
/// only say how the run was described (files, --fsdp ...).
Value stored_configuration(const RunConfig& config);

/// "learning_rate 1e-04 (was 5e-05)": the settings on which the numbers of a run depend (the sections model, data and
/// optimization, ignore_data_skip, grad_compression) whose value differs from the stored one. Settings that `stored`
/// does not know (an older program's) are passed over; it may be any JSON.
std::vector<std::string> changed_since(const Value& stored, const RunConfig& now);

}  // namespace tessera::config
