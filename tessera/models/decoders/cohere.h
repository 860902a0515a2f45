#pragma once
/// \file
/// Cohere's Command R (2024) and Command A, R7B (2025), as transformers/models/{cohere,cohere2}/modeling_*.py compute
/// them: attention and MLP beside one another behind one layer norm, neighbours rotated as pairs, logits scaled; in 2
/// windows in three of four layers, of which the fourth is not rotated.

#include <tessera/models/llama_config.h>

namespace tessera::models {

/// Throw InputError as parse_llama_config does.
LlamaConfig parse_cohere_config(const Value& json);
LlamaConfig parse_cohere2_config(const Value& json);

}  // namespace tessera::models
