#pragma once
/// \file
/// The models that --config_name knows by name, as config.json describes them. models/ builds them; front ends ask for
/// their sizes.

#include <tessera/base/value.h>

#include <optional>
#include <string>

namespace tessera::config {

/// gpt2, gpt2-tiny, llama-tiny; nullopt for another name.
std::optional<Value> model_preset(const std::string& name);

}  // namespace tessera::config
