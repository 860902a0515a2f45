#pragma once
/// \file
/// Low-rank adapters (LoRA, Hu et al. 2021) on a model's linear maps: y = x W + b + scale * dropout(x) A^T B^T with W
/// and b frozen, A [r, in], B [out, r]. Selection, names, initialisation and scale are PEFT's (peft/tuners/lora).
/// Targets: a module is meant when its full name is the target's or ends in "." + target ("q_proj", "mlp.c_proj"), or
/// when it matches a pattern (base/names/module_names.h) whole; "all-linear" means every linear map but the head. A
/// folder whose configuration holds a pattern is read by the tensors in it. Modules named in modules_to_save are
/// trained whole beside the adapters, in place: PEFT trains a copy, which computes the same.

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

/// Freezes every parameter of the model and gives the targets trainable adapters: A from U(-1/sqrt(in), 1/sqrt(in))
/// (torch's kaiming_uniform_ with a = sqrt(5)) keyed by (seed, name), B zero, so that the model computes what it did.
/// Embeddings that are the head's, too, are trained as one, and modules_to_save then names both. Returns the
/// configuration with its targets spelled out, for write_adapter_folder. Throws InputError when a target or
/// one of modules_to_save matches nothing (with the nearest names), a target matches what is no linear map, a module is
/// both, or the model has adapters already. Of a model without memory
/// (load_model_deferred) the adapters have none either; before keep_stages() and keep_experts(), so that every rank
/// sees all targets and keeps its own.
LoraConfig apply_lora(LanguageModel& model, LoraConfig config, std::uint64_t seed);

/// Whether a parameter of this name would be the model's head, whose matrix is its embeddings' (tied_parameter()), and
/// is none of its own.
bool is_tied_copy(const LanguageModel& model, const std::string& parameter);
/// Sets config.kept_embeddings to what is not trained of the model's embeddings and head, whose rows are more than the
/// base's.
void keep_embeddings(const LanguageModel& model, LoraConfig& config);

/// The adapters: MODULE.lora_A.weight, MODULE.lora_B.weight, in the order of modules. Empty: none. They alias the
/// model's.
checkpoint::NamedTensors lora_state(const LanguageModel& model);
/// The same with the parameters that are trained whole beside them.
checkpoint::NamedTensors adapter_state(const LanguageModel& model);

/// Overwrites the adapters of a model that apply_lora has prepared, and what is trained beside them, by those of a
/// folder; what lies elsewhere (LanguageModel::lies_elsewhere) is not read. Throws InputError listing all missing,
/// unexpected and misshapen tensors, or when scales differ.
void load_adapters(LanguageModel& model, const LoraConfig& config, const std::string& folder);

/// The model that an adapter folder means: its base, frozen, with the folder's adapters, trainable.
std::shared_ptr<LanguageModel> load_adapted_model(const std::string& folder, std::uint64_t seed);
/// The same without memory; `weights_folder` receives the base model's folder, load_adapters() the adapters' values.
std::shared_ptr<LanguageModel> load_adapted_model_deferred(const std::string& folder, std::uint64_t seed,
                                                           std::string& weights_folder);
/// The configuration of a model that load_adapted_model(folder) has made, targets spelled out, base an absolute path.
LoraConfig loaded_lora_config(const LanguageModel& model, const std::string& folder);

/// Adds scale * (B A) to the frozen weights in place and removes the adapters. No adapters: nothing happens. Quantized
/// weights (models/frozen/) become whole first, with the values that they were trained beside.
void merge_lora(LanguageModel& model);

/// LanguageModel::flops_per_token for a model whose own N matrix parameters, but those that are trained whole, are
/// frozen: their gradients (2 N) are not formed, the adapters' products (6 each parameter) come on top. Of the whole
/// model, wherever its parts are.
double lora_flops_per_token(const LanguageModel& model, std::int64_t block_size);

/// "trainable params: 294,912 || all params: 124,734,720 || trainable%: 0.2364", as PEFT prints it; tied parameters
/// once, what lies elsewhere, too.
std::string describe_trainable(const LanguageModel& model);

}  // namespace tessera::models
