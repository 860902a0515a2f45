#pragma once
/// \file
/// A Llava put together as LLaVA's arguments say (llava/train/train.py): a language model's folder, a folder of CLIP, a
/// projector of its own or from a file; and which of its parts are trained.

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
/// --pretrain_mm_mlp_adapter where it is given, else a projector from `seed`. A folder that sees images already gets
/// the tower's weights, and keeps its preprocessor_config.json, and its projector unless there is
/// --pretrain_mm_mlp_adapter. The tower's folder may hold a CLIPModel, of which the vision part is taken, in
/// safetensors or as torch.save wrote it. Throws InputError where they do not fit each other.
std::shared_ptr<Llava> compose_llava(const ModelConfig& config, std::uint64_t seed, const ConfigEdit& edit);

/// The name of a projector among a Llava's modules.
inline constexpr const char* projector_module = "multi_modal_projector";
/// Whether a parameter is a projector's.
bool is_of_projector(const std::string& parameter);

/// What a folder of adapters keeps of a base that compose_llava made, its config.json: the model's, with LLaVA's words
/// for what it was put together of ("mm_vision_tower", ...), paths absolute. Null where --vision_tower is not given.
Value describe_composition(const Value& hf_config, const ModelConfig& config);
/// The base model that a folder of adapters means, by such a config.json (or null) and the folder of its language
/// model: what load_language_model takes. Its projector's values are among the adapters. Throws InputError for words
/// that are none.
ModelConfig base_of_adapters(const std::string& language_folder, const Value& composition);
/// Whether load_language_model puts the model together of several folders.
bool is_composed(const ModelConfig& config);

/// Overwrites a projector from what LLaVA calls mm_projector.bin: a file of torch.save or safetensors (names
/// model.mm_projector.0.weight or multi_modal_projector.linear_1.weight), a model's folder, or such a file's name in
/// a folder that has a model instead of it. Throws InputError for what is missing or of another shape.
void load_projector(LlavaProjector& projector, const std::string& path);

/// --tune_mm_mlp_adapter: the projector alone is trained; --freeze_backbone: not the language model;
/// --freeze_mm_mlp_adapter: not the projector. Throws InputError for a model that sees no images.
void choose_trained_parts(LanguageModel& model, const ModelConfig& config);

}  // namespace tessera::models
