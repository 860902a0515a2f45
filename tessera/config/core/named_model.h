#pragma once
/// \file
/// The config.json that the settings of a model name: a file, or a preset (architectures/presets.h), changed by
/// options.

#include <tessera/base/value.h>

namespace tessera {
struct ModelConfig;
}

namespace tessera::config {

/// A config.json changed by config_overrides and the settings of maximal update parameterization. Throws InputError for
/// wrong overrides.
Value with_settings(const Value& model, const ModelConfig& config);
/// config.json of a model that starts from scratch: config_name (a file, a folder with one, a preset) changed by
/// config_overrides. Throws InputError for a name that is none of them, a file that cannot be read, wrong overrides.
Value model_from_scratch(const ModelConfig& config);

}  // namespace tessera::config
