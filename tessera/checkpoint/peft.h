#pragma once
/// \file
/// PEFT's folder of low-rank adapters (LoRA, Hu et al. 2021): adapter_config.json and adapter_model.safetensors, as
/// written and read by peft 0.21 (peft/tuners/lora/config.py, peft/utils/save_and_load.py). It does not contain the
/// base model's weights.

#include <tessera/checkpoint/checkpoint.h>
#include <tessera/format/manifest/manifest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::checkpoint {

/// The settings of adapter_config.json that affect the computation.
struct LoraConfig {
  std::int64_t r = 8;
  double alpha = 16;
  double dropout = 0;
  /// Full names of modules, or their ends ("q_proj"). {}: the model's default. {"all-linear"}: every linear map except
  /// the head. One pattern (base/names/module_names.h): the modules whose whole names match it.
  std::vector<std::string> target_modules;
  /// The configuration selects its modules in a way that only PEFT evaluates (a regular expression,
  /// layers_to_transform, exclude_modules): the tensors of the adapter file determine them, and target_modules is
  /// empty.
  bool targets_from_weights = false;
  /// Modules trained whole in addition to the adapters, by name or end of name ("lm_head"): their parameters are also
  /// in adapter_model.safetensors, under their own names.
  std::vector<std::string> modules_to_save;
  /// Parameters of embeddings and the head that are not trained but saved as well, under their own names, because the
  /// base has fewer rows (PEFT's save_embedding_layers).
  std::vector<std::string> kept_embeddings;
  /// rank_pattern, alpha_pattern: r and alpha of modules whose names, or ends of them after a dot, match; the first
  /// match counts. Regular expressions.
  std::vector<std::pair<std::string, std::int64_t>> ranks;
  std::vector<std::pair<std::string, double>> alphas;
  /// ensure_weight_tying: modules_to_save contains embeddings tied to the head, and they are trained as one matrix.
  bool ties_embeddings = false;
  bool rank_stabilized = false;  ///< use_rslora: scale alpha / sqrt(r) (Kalajdzievski 2023) instead of alpha / r
  bool fan_in_fan_out = false;   ///< the base stores its weights [in, out] (GPT-2)
  std::string base_model;        ///< base_model_name_or_path, verbatim
  /// The config.json next to adapter_config.json, if the base is composed of several folders, which it names
  /// (models/vision/compose.h); null: the base is the folder base_model.
  Value composition;

  std::int64_t rank_of(const std::string& module) const;
  double alpha_of(const std::string& module) const;
  /// The factor of the product lora_B lora_A.
  double scale_of(const std::string& module) const;
};

/// Whether a tensor is a matrix of an adapter: MODULE.lora_A.weight or MODULE.lora_B.weight.
bool is_adapter_name(std::string_view name);
/// Whether a parameter belongs to one of config.modules_to_save.
bool is_saved_whole(std::string_view parameter, const LoraConfig& config);

/// Whether a parameter is one that PEFT saves with adapters when embeddings were resized.
bool is_embedding_name(std::string_view parameter);

/// Whether the folder contains adapters (adapter_config.json) instead of a whole model.
bool is_adapter_folder(const std::string& folder);

/// Reads and checks adapter_config.json. Throws InputError with file:line for anything that this program cannot compute
/// (another PEFT type or task, DoRA, biases, initializations that change the base, any unknown member that is set).
LoraConfig read_adapter_config(const std::string& folder);
/// Every tensor of adapter_model.safetensors, with PEFT's names without "base_model.model.": MODULE.lora_A.weight [r,
/// in], MODULE.lora_B.weight [out, r], the parameters of modules_to_save, and those of embeddings and heads, which PEFT
/// saves if the base's vocabulary was resized. Prefixes of wrappers ("_orig_mod.") are removed. Throws InputError
/// (listing all) for any other tensor, or one without a floating-point type. Skips those for which `wanted`, if set,
/// returns false.
NamedTensors read_adapter_weights(const std::string& folder,
                                  const std::function<bool(const std::string& name)>& wanted = {});
/// Returns the names of these tensors, with the same checks.
std::vector<std::string> adapter_names(const std::string& folder);
/// Throws InputError if the folder stores an adapter for a module that adapter_config.json does not select
/// (target_modules as a pattern, layers_to_transform, as PEFT reads them).
void require_targets(const std::string& folder, const std::vector<std::string>& stored);
/// Number of rows of an embedding or head among the stored tensors; 0: there is neither.
std::int64_t adapter_vocabulary(const std::string& folder);
/// The folder of the base model: base_model_name_or_path; a relative path is resolved against the adapter's folder
/// first, then the working directory. Throws InputError with the remedy if neither exists, or if it contains adapters
/// itself.
std::string base_model_folder(const std::string& adapter_folder, const LoraConfig& config);

/// Writes adapter_config.json (targets: config.target_modules), config.composition if set, adapter_model.safetensors
/// and the tokenizer's files (may be nullptr) into an existing folder. `adapters`: names without "base_model.model.".
void write_adapter_folder(const std::string& folder, const NamedTensors& adapters, const LoraConfig& config,
                          const text::Tokenizer* tokenizer);
/// Same without the tensors; returns the digests of what was written.
std::vector<format::ManifestFile> write_adapter_settings(const std::string& folder, const LoraConfig& config,
                                                         const text::Tokenizer* tokenizer);

}  // namespace tessera::checkpoint
