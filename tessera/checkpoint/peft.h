#pragma once
/// \file
/// The folder in which PEFT keeps low-rank adapters (LoRA, Hu et al. 2021): adapter_config.json and
/// adapter_model.safetensors, as peft 0.21 writes and reads them (peft/tuners/lora/config.py,
/// peft/utils/save_and_load.py). The base model's weights are not in it.

#include <tessera/checkpoint/checkpoint.h>
#include <tessera/format/manifest/manifest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::checkpoint {

/// What adapter_config.json says, as far as it changes what is computed.
struct LoraConfig {
  std::int64_t r = 8;
  double alpha = 16;
  double dropout = 0;
  /// Full names of modules, or their ends ("q_proj"). {}: the model's default. {"all-linear"}: every linear map but the
  /// head. One pattern (base/names/module_names.h): the modules whose whole names match it.
  std::vector<std::string> target_modules;
  /// The config chose its modules in a way that only PEFT evaluates (a regular expression, layers_to_transform,
  /// exclude_modules): the tensors of the adapter file tell which they are, and target_modules is empty.
  bool targets_from_weights = false;
  /// Modules trained whole beside the adapters, their names or ends of them ("lm_head"): their parameters are in
  /// adapter_model.safetensors, too, by their own names.
  std::vector<std::string> modules_to_save;
  /// Parameters of embeddings and the head that are not trained but saved, too, by their own names: the base has fewer
  /// rows (PEFT's save_embedding_layers).
  std::vector<std::string> kept_embeddings;
  /// rank_pattern, alpha_pattern: r and alpha of modules whose names, or ends of them behind a dot, match; the first
  /// that does counts. Regular expressions.
  std::vector<std::pair<std::string, std::int64_t>> ranks;
  std::vector<std::pair<std::string, double>> alphas;
  /// ensure_weight_tying: modules_to_save names embeddings that are the head's matrix, too, and are trained as one.
  bool ties_embeddings = false;
  bool rank_stabilized = false;  ///< use_rslora: scale alpha / sqrt(r) (Kalajdzievski 2023) instead of alpha / r
  bool fan_in_fan_out = false;   ///< the base stores its weights [in, out] (GPT-2)
  std::string base_model;        ///< base_model_name_or_path as written
  /// config.json beside adapter_config.json, where the base is put together of more folders than base_model, which it
  /// names (models/vision/compose.h); null: it is that folder.
  Value composition;

  std::int64_t rank_of(const std::string& module) const;
  double alpha_of(const std::string& module) const;
  /// What lora_B lora_A is multiplied by.
  double scale_of(const std::string& module) const;
};

/// Whether a tensor is a matrix of an adapter: MODULE.lora_A.weight or MODULE.lora_B.weight.
bool is_adapter_name(std::string_view name);
/// Whether a parameter belongs to one of config.modules_to_save.
bool is_saved_whole(std::string_view parameter, const LoraConfig& config);

/// Whether a parameter is one that PEFT saves beside adapters where embeddings have got other rows.
bool is_embedding_name(std::string_view parameter);

/// Whether the folder holds adapters (adapter_config.json), and so is not a whole model.
bool is_adapter_folder(const std::string& folder);

/// Reads and checks adapter_config.json. What this program cannot compute (another PEFT type or task, DoRA, biases,
/// initialisations that change the base, any member it does not know that is set) throws
/// InputError with file:line.
LoraConfig read_adapter_config(const std::string& folder);
/// Every tensor of adapter_model.safetensors, PEFT's names without "base_model.model.": MODULE.lora_A.weight [r, in],
/// MODULE.lora_B.weight [out, r], the parameters of modules_to_save, and those of embeddings and heads, which PEFT
/// saves where the base's vocabulary was resized. What wrappers put into names ("_orig_mod.") is left out. Any other
/// tensor, or one that is no float, throws InputError (all are listed). Not read: those for which `wanted`, if there is
/// one, says no.
NamedTensors read_adapter_weights(const std::string& folder,
                                  const std::function<bool(const std::string& name)>& wanted = {});
/// Their names, with the same checks.
std::vector<std::string> adapter_names(const std::string& folder);
/// Throws InputError that names a module of theirs to which adapter_config.json, as PEFT reads its target_modules (a
/// pattern) and layers_to_transform, gives no adapter.
void require_targets(const std::string& folder, const std::vector<std::string>& stored);
/// Rows of an embedding, or a head, among them; 0: there is none.
std::int64_t adapter_vocabulary(const std::string& folder);
/// The folder of the base model: base_model_name_or_path, a relative one below the adapter's folder, else below the
/// working directory. Throws InputError with the remedy when neither exists, or when it holds adapters itself.
std::string base_model_folder(const std::string& adapter_folder, const LoraConfig& config);

/// Writes adapter_config.json (targets: config.target_modules), config.composition if there is one,
/// adapter_model.safetensors and the tokenizer's files (may be nullptr) into an existing folder. `adapters`: names
/// without "base_model.model.".
void write_adapter_folder(const std::string& folder, const NamedTensors& adapters, const LoraConfig& config,
                          const text::Tokenizer* tokenizer);
/// The same without the tensors, and with the digests of what was written.
std::vector<format::ManifestFile> write_adapter_settings(const std::string& folder, const LoraConfig& config,
                                                         const text::Tokenizer* tokenizer);

}  // namespace tessera::checkpoint
