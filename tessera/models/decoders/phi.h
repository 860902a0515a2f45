#pragma once
/// \file
/// Phi-1, 1.5 and 2 (2023), as transformers/models/phi/modeling_phi.py computes them: attention and MLP beside one
/// another behind one layer norm, biases everywhere, the head's too, a part of each head rotated.

#include <tessera/models/llama_config.h>

namespace tessera::models {

/// Throws InputError as parse_llama_config does.
LlamaConfig parse_phi_config(const Value& json);

}  // namespace tessera::models
