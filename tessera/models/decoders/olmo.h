#pragma once
/// \file
/// OLMo 1, 2 and 3 (Groeneveld et al. 2024; OLMo Team 2025, 2025), as transformers/models/{olmo,olmo2,olmo3}/
/// modeling_*.py compute them: layer norms without parameters (1); RMS norms on what attention and the MLP give, and of
/// all of q and of k (2, 3); windows in three of four layers, whose rotation is not stretched (3).

#include <tessera/models/llama_config.h>

namespace tessera::models {

/// Throw InputError as parse_llama_config does.
LlamaConfig parse_olmo_config(const Value& json);
LlamaConfig parse_olmo2_config(const Value& json);
LlamaConfig parse_olmo3_config(const Value& json);

}  // namespace tessera::models
