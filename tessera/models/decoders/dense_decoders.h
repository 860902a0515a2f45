#pragma once
/// \file
/// Decoders that differ from Llama in a few values, as transformers/models/NAME/modeling_NAME.py computes them: Granite
/// (multipliers), SmolLM3 (layers that are not rotated), Arcee and Nemotron (squared ReLU without a gate), StableLM and
/// StarCoder2 (layer norms).

#include <tessera/models/llama_config.h>

namespace tessera::models {

/// Throw InputError as parse_llama_config does.
LlamaConfig parse_granite_config(const Value& json);
LlamaConfig parse_smollm3_config(const Value& json);
LlamaConfig parse_arcee_config(const Value& json);
LlamaConfig parse_nemotron_config(const Value& json);
LlamaConfig parse_stablelm_config(const Value& json);
LlamaConfig parse_starcoder2_config(const Value& json);

}  // namespace tessera::models
