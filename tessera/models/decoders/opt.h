#pragma once
/// \file
/// OPT (Zhang et al. 2022), as transformers/models/opt/modeling_opt.py computes it: learned positions, layer norms,
/// ReLU, biases.

#include <tessera/models/llama_config.h>

#include <string>

namespace tessera::models {

/// Throws InputError as parse_llama_config does; so do OPT-350m's embeddings of another width and norms behind the
/// residual sums. `embedding_dropout` is a member of ours, for models begun here: transformers drops no embeddings.
LlamaConfig parse_opt_config(const Value& json);

/// See llama_tensor_name; the published files leave out "model.".
std::string opt_tensor_name(const std::string& name_in_file, const Value& hf_config);

}  // namespace tessera::models
