#pragma once
/// \file
/// Which of the settings of `tessera train` tessera::Trainer follows. All others are named in a warning when they are
/// given, so that none is dropped silently.

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

/// Names of config::fields(). Those of `tessera train` that are not among them belong to its own model, data and loss,
/// or to the agent that starts processes.
std::span<const std::string_view> trainer_settings();

/// Settings that are refused where they are given, with an InputError of check_trainer_settings(), or, for a module of
/// the program's own, of Training.
std::vector<std::string_view> refused_by_trainer();
void check_trainer_settings(const RunConfig& config);

/// What was given, differs from its default, and has no effect on tessera::Trainer: settings that are not among
/// trainer_settings() nor refused, and a value of one that is.
std::vector<std::string> without_effect_on_trainer(const config::Resolved& given);

}  // namespace tessera::faces
