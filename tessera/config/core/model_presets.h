#pragma once
/// \file
/// The models that --config_name knows by name, as config.json describes them. models/ builds them; front ends ask for
/// their sizes.

#include <tessera/base/value.h>

#include <optional>
#include <string>

namespace tessera {
struct ModelConfig;
}

namespace tessera::config {

/// nullopt for a name that is none of model_preset_names().
std::optional<Value> model_preset(const std::string& name);
/// "gpt2, gpt2-tiny, llama-tiny, ..."
std::string model_preset_names();
/// As model_preset; throws InputError with the names for another one.
Value known_preset(const std::string& name);

/// A config.json changed by config_overrides and the settings of maximal update parameterization. Throws InputError for
/// wrong overrides.
Value with_settings(const Value& model, const ModelConfig& config);
/// config.json of a model that starts from scratch: config_name (a file, a folder with one, a preset) changed by
/// config_overrides. Throws InputError for a name that is none of them, a file that cannot be read, wrong overrides.
Value model_from_scratch(const ModelConfig& config);

}  // namespace tessera::config
