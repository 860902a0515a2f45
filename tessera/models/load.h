#pragma once
/// \file
/// From a name to a model: a Hugging Face folder, a config.json, or a preset.

#include <tessera/config/run_config.h>
#include <tessera/models/causal_lm.h>

namespace tessera::models {

/// Builds the model that `config` names; with model_name_or_path its weights are read (fp32), else they are initialised
/// from `seed` by Hugging Face's rule. A folder of LoRA adapters (PEFT) means its base model with them (lora.h).
/// Missing, unexpected and misshapen tensors are all listed in one InputError.
std::shared_ptr<CausalLm> load_model(const ModelConfig& config, std::uint64_t seed);
/// The model of a Hugging Face folder with its weights (fp32), or of an adapter folder with its base.
std::shared_ptr<CausalLm> load_folder(const std::string& folder);
/// The same from an explicit config.json value (used by checkpoints); weights initialised from seed.
std::shared_ptr<CausalLm> make_model(const Value& hf_config, std::uint64_t seed);
/// Overwrites the weights from a folder holding model.safetensors (or a sharded index).
void load_weights(CausalLm& model, const std::string& folder);
/// Presets for --config_name: "gpt2", "gpt2-tiny", "llama-tiny".
Value preset(const std::string& name);

}  // namespace tessera::models
