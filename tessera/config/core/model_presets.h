#pragma once
/// \file
/// The models that --config_name knows by name, as config.json describes them. models/ builds them; front ends ask for
/// their sizes.

#include <tessera/base/value.h>

#include <optional>
#include <string>

namespace tessera::config {

/// nullopt for a name that is none of model_preset_names().
std::optional<Value> model_preset(const std::string& name);
/// "gpt2, gpt2-tiny, llama-tiny, ..."
std::string model_preset_names();

}  // namespace tessera::config
