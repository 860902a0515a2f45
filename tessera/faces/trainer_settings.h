#pragma once
/// \file
/// The settings of `tessera train` that tessera::Trainer follows. Others that are set cause a warning, so that none is
/// dropped silently.

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {
struct RunConfig;
}

namespace tessera::config {
struct Resolved;
}

namespace tessera::faces {

/// Names of config::fields(). The remaining settings of `tessera train` concern its own model, data and loss, or the
/// agent that starts processes.
std::span<const std::string_view> trainer_settings();

/// Settings that are refused if set, with an InputError from check_trainer_settings() or, for the program's own module,
/// from Training.
std::vector<std::string_view> refused_by_trainer();
void check_trainer_settings(const RunConfig& config);

/// Settings that were set, differ from their defaults, and have no effect on tessera::Trainer: settings that are
/// neither in trainer_settings() nor refused, and one value of a setting in trainer_settings().
std::vector<std::string> without_effect_on_trainer(const config::Resolved& given);

}  // namespace tessera::faces
