#pragma once
/// \file
/// The config.json that the model settings name (a file or a preset of architectures/presets.h), with overrides
/// applied.

#include <tessera/base/value.h>

namespace tessera {
struct ModelConfig;
}

namespace tessera::config {

/// Applies config_overrides and the settings of maximal update parameterization to a config.json. Throws InputError for
/// invalid overrides.
Value with_settings(const Value& model, const ModelConfig& config);
/// config.json of a model trained from scratch: config_name (a file, a folder with one, or a preset) with
/// config_overrides applied. Throws InputError for an unknown name, an unreadable file or invalid overrides.
Value model_from_scratch(const ModelConfig& config);

}  // namespace tessera::config
