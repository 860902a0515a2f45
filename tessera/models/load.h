#pragma once
/// \file
/// From a name to a model: a Hugging Face folder, a config.json, or a preset.

#include <tessera/checkpoint/read_into.h>
#include <tessera/format/safetensors/safetensors_index.h>
#include <tessera/models/causal_lm.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera {
struct ModelConfig;
}

namespace tessera::models {

/// Changes a config.json before a model is made of it (which head of an encoder, say).
using ConfigEdit = std::function<Value(Value)>;

/// Which weights of a folder a smaller model begins with (layer reduction: Fan et al. 2019, DeepSpeed's
/// compression_training); all others are as if there was no folder.
struct BlockChoice {
  std::string prefix;                ///< what names of blocks begin with: "bert.encoder.layer"
  std::vector<std::int64_t> blocks;  ///< block i of the model is block blocks[i] of the folder; all different
  std::vector<std::string> others;   ///< modules outside of the blocks that are taken over: "bert.embeddings"

  /// The folder's config.json with so many blocks. Throws InputError for blocks that the folder does not have.
  Value smaller(Value hf_config) const;
  /// What the folder's parameter of this name is called in the model; nothing: it is not taken over.
  std::optional<std::string> renamed(const std::string& name) const;
  /// Whether a parameter of the model with this name is taken over.
  bool takes(const std::string& name) const;
};

/// Builds the model that `config` names; with model_name_or_path its weights are read (fp32), else they are initialised
/// from `seed` by Hugging Face's rule. A folder of LoRA adapters (PEFT) means its base model with them (lora.h). An
/// encoder's head that the folder lacks is initialised from `seed`, with a warning. Missing, unexpected and misshapen
/// tensors are all listed in one InputError. `choice`: only these of the weights are read; not of a folder of adapters.
std::shared_ptr<LanguageModel> load_language_model(const ModelConfig& config, std::uint64_t seed,
                                                   const ConfigEdit& edit = {}, const BlockChoice* choice = nullptr);
/// The model of a Hugging Face folder with its weights (fp32), or of an adapter folder with its base.
std::shared_ptr<LanguageModel> load_language_folder(const std::string& folder, std::uint64_t seed = 0,
                                                    const ConfigEdit& edit = {}, const BlockChoice* choice = nullptr);
/// The same from an explicit config.json value (used by checkpoints); weights initialised from seed.
std::shared_ptr<LanguageModel> make_language_model(const Value& hf_config, std::uint64_t seed);
/// The same without memory for the parameters (parallel/deferred/deferred.h): for an engine that keeps parts of them.
/// With model_name_or_path nothing is read: `weights_folder` receives the folder whose WeightSource has the values;
/// empty: the parameters' own initialisers have them. Of a folder of adapters that is its base model's, and the
/// adapters' values are load_adapters()' (lora.h). With vision_tower the model has memory and all its values.
std::shared_ptr<LanguageModel> load_model_deferred(const ModelConfig& config, std::uint64_t seed,
                                                   std::string& weights_folder, const ConfigEdit& edit = {},
                                                   const BlockChoice* choice = nullptr);

/// The same for those who continue texts: another model than a causal one throws InputError.
std::shared_ptr<CausalLm> load_model(const ModelConfig& config, std::uint64_t seed);
std::shared_ptr<CausalLm> load_folder(const std::string& folder);
std::shared_ptr<CausalLm> make_model(const Value& hf_config, std::uint64_t seed);

/// The weights of a folder, matched with a model's parameters, to be read piece by piece. Nothing is read before it is
/// asked for; what is not asked for never becomes resident. Any number of threads may read.
class WeightSource {
 public:
  /// Missing, unexpected and misshapen tensors are all listed in one InputError, as load_weights does. `model` may be
  /// without memory. Parameters whose names `skip` returns true for are not looked for: read() returns false for them.
  WeightSource(const LanguageModel& model, const std::string& folder,
               const std::function<bool(const std::string&)>& skip = {},
               const std::shared_ptr<format::ReadSums>& sums = {}, const BlockChoice* choice = nullptr);
  WeightSource(const WeightSource&) = delete;
  WeightSource& operator=(const WeightSource&) = delete;
  /// Fills `piece` (contiguous) with elements [begin, begin + piece.numel()) of the flattened parameter, converted.
  /// Returns false for parameters that are not in the folder.
  bool read(const std::string& parameter, std::int64_t begin, at::Tensor piece) const;

 private:
  format::SafetensorsFolder folder_;
  std::vector<checkpoint::PieceReader> readers_;  // readers of its files
  std::map<std::string, const format::SafetensorsFolder::Stored*> stored_;
};

/// Memory and values for a parameter of load_model_deferred(): from `weights`, or, where it is not there or they are
/// null, from its initialisers. One that has memory stays as it is.
void fill_parameter(const std::string& name, const at::Tensor& parameter, const WeightSource* weights);
/// The same for all that `model` holds.
void fill_parameters(LanguageModel& model, const WeightSource* weights);

/// Overwrites the weights from a folder holding model.safetensors (or a sharded index).
void load_weights(LanguageModel& model, const std::string& folder, const std::shared_ptr<format::ReadSums>& sums = {},
                  const BlockChoice* choice = nullptr);
/// The same for a module that is no language model itself but has the parameter names of `hf_config`'s architecture.
void load_weights(torch::nn::Module& module, const Value& hf_config, const std::string& folder,
                  const std::shared_ptr<format::ReadSums>& sums = {}, const BlockChoice* choice = nullptr);
/// Presets for --config_name: "gpt2", "gpt2-tiny", "llama-tiny".
Value preset(const std::string& name);

}  // namespace tessera::models
