#pragma once
/// \file
/// Low-rank adapters (LoRA, Hu et al. 2021) for a model's linear maps: y = x W + b + scale * dropout(x) A^T B^T with W
/// and b frozen, A [r, in], B [out, r]. Selection, names, initialization and scale are PEFT's (peft/tuners/lora).
/// Targets: a target selects a module if the module's full name equals it or ends in "." + target ("q_proj",
/// "mlp.c_proj"), or if the whole name matches a pattern (base/names/module_names.h); "all-linear" selects every linear
/// map except the head. For a folder whose configuration contains a pattern, its tensors decide. Modules in
/// modules_to_save are trained whole in addition to the adapters, in place: PEFT trains a copy, which computes the
/// same.

#include <tessera/checkpoint/peft.h>
#include <tessera/models/causal_lm.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tessera {
struct ModelConfig;
}

namespace tessera::models {

using checkpoint::LoraConfig;

/// The LoRA settings of the command line; --vision_tower's projector is trained whole. Throws InputError for an empty
/// name in lora_target_modules or lora_modules_to_save.
LoraConfig lora_config(const ModelConfig& config);

/// Freezes every parameter of the model and adds trainable adapters to the targets: A from U(-1/sqrt(in), 1/sqrt(in))
/// (torch's kaiming_uniform_ with a = sqrt(5)) keyed by (seed, name), B zero, so that the model's output is unchanged.
/// Embeddings tied to the head are trained as one matrix, and modules_to_save then contains both names. Returns the
/// configuration with its targets spelled out, for write_adapter_folder. Throws InputError if a target or one of
/// modules_to_save matches nothing (with the nearest names), a target matches something other than a linear map, a
/// module is both, or the model already has adapters. For a model without memory (load_model_deferred) the adapters
/// have none either. Call before keep_stages() and keep_experts(), so that every rank sees all targets and keeps its
/// own.
LoraConfig apply_lora(LanguageModel& model, LoraConfig config, std::uint64_t seed);

/// Whether a parameter of this name would be the model's head, which shares the embeddings' matrix (tied_parameter())
/// and is not a separate parameter.
bool is_tied_copy(const LanguageModel& model, const std::string& parameter);
/// Sets config.kept_embeddings to the frozen ones among the model's embeddings and head, which have more rows than the
/// base's.
void keep_embeddings(const LanguageModel& model, LoraConfig& config);

/// The adapters: MODULE.lora_A.weight, MODULE.lora_B.weight, in module order. Empty: no adapters. They alias the
/// model's.
checkpoint::NamedTensors lora_state(const LanguageModel& model);
/// Same, plus the parameters that are trained whole.
checkpoint::NamedTensors adapter_state(const LanguageModel& model);

/// Overwrites the adapters of a model prepared by apply_lora, and the parameters trained whole, with those of a folder;
/// parameters on other ranks (LanguageModel::lies_elsewhere) are not read. Throws InputError listing all missing,
/// unexpected and misshapen tensors, or if scales differ.
void load_adapters(LanguageModel& model, const LoraConfig& config, const std::string& folder);

/// The model of an adapter folder: its base, frozen, with the folder's adapters, trainable.
std::shared_ptr<LanguageModel> load_adapted_model(const std::string& folder, std::uint64_t seed);
/// Like load_adapted_model(), but without memory; `weights_folder` receives the base model's folder; load_adapters()
/// reads the adapters' values.
std::shared_ptr<LanguageModel> load_adapted_model_deferred(const std::string& folder, std::uint64_t seed,
                                                           std::string& weights_folder);
/// The configuration of a model made by load_adapted_model(folder): targets spelled out, base as an absolute path.
LoraConfig loaded_lora_config(const LanguageModel& model, const std::string& folder);

/// Adds scale * (B A) to the frozen weights in place and removes the adapters. Does nothing without adapters. Quantized
/// weights (models/frozen/) are first dequantized to the values used in training.
void merge_lora(LanguageModel& model);

/// LanguageModel::flops_per_token for a model whose own N matrix parameters, except those trained whole, are frozen:
/// their gradients (2 N) are not computed; the adapters' products (6 per parameter) are added. For the whole model,
/// wherever its parts are.
double lora_flops_per_token(const LanguageModel& model, std::int64_t block_size);

/// "trainable params: 294,912 || all params: 124,734,720 || trainable%: 0.2364", in PEFT's format; counts tied
/// parameters once and includes parameters on other ranks.
std::string describe_trainable(const LanguageModel& model);

}  // namespace tessera::models
