#pragma once
/// \file
/// Builds a Llava from LLaVA's arguments (llava/train/train.py): a language model's folder, a CLIP folder, and a new
/// projector or one from a file; and selects which parts are trained.

#include <tessera/models/load.h>
#include <tessera/models/vision/llava.h>

#include <cstdint>
#include <memory>
#include <string>

namespace tessera {
struct ModelConfig;
}

namespace tessera::models {

/// The model of --model_name_or_path (or --config_name) and --vision_tower, with the weights of
/// --pretrain_mm_mlp_adapter if set, otherwise with a projector initialized from `seed`. A folder that already has
/// image input gets the tower's weights, and keeps its preprocessor_config.json, and also its projector unless
/// --pretrain_mm_mlp_adapter is set. The tower's folder may contain a CLIPModel, whose vision part is used, in
/// safetensors or as written by torch.save. Throws InputError if the parts do not fit each other.
std::shared_ptr<Llava> compose_llava(const ModelConfig& config, std::uint64_t seed, const ConfigEdit& edit);

/// The name of a projector among a Llava's modules.
inline constexpr const char* projector_module = "multi_modal_projector";
/// Whether a parameter belongs to a projector.
bool is_of_projector(const std::string& parameter);

/// The config.json that a folder of adapters stores for a base made by compose_llava: the model's, with LLaVA's keys
/// for its components ("mm_vision_tower", ...) and absolute paths. Null if --vision_tower is not set.
Value describe_composition(const Value& hf_config, const ModelConfig& config);
/// The base model of a folder of adapters, from such a config.json (or null) and the folder of its language model, as
/// the argument of load_language_model. Its projector's values are among the adapters. Throws InputError for invalid
/// words.
ModelConfig base_of_adapters(const std::string& language_folder, const Value& composition);
/// Whether load_language_model composes the model from several folders.
bool is_composed(const ModelConfig& config);

/// Overwrites a projector from the file that LLaVA calls mm_projector.bin: a file of torch.save or safetensors (names
/// model.mm_projector.0.weight or multi_modal_projector.linear_1.weight), a model's folder, or the name of such a file
/// in a folder that has a model instead. Throws InputError for missing or misshapen tensors.
void load_projector(LlavaProjector& projector, const std::string& path);

/// --tune_mm_mlp_adapter: trains only the projector; --freeze_backbone: freezes the language model;
/// --freeze_mm_mlp_adapter: freezes the projector. Throws InputError for a model without image input.
void choose_trained_parts(LanguageModel& model, const ModelConfig& config);

}  // namespace tessera::models
