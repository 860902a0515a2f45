#pragma once
/// \file
/// Loads a model by name: a Hugging Face folder, a config.json, or a preset.

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

/// Changes a config.json before a model is created from it (the head of an encoder, for example).
using ConfigEdit = std::function<Value(Value)>;

/// The weights of a folder from which a smaller model starts (layer reduction: Fan et al. 2019, DeepSpeed's
/// compression_training); all other weights are initialized as without a folder.
struct BlockChoice {
  std::string prefix;                ///< prefix of block names: "bert.encoder.layer"
  std::vector<std::int64_t> blocks;  ///< block i of the model is block blocks[i] of the folder; all different
  std::vector<std::string> others;   ///< modules outside the blocks to take from the folder: "bert.embeddings"

  /// The folder's config.json with this number of blocks. Throws InputError for blocks that the folder does not have.
  Value smaller(Value hf_config) const;
  /// The model's name for a parameter of the folder; nullopt: not taken.
  std::optional<std::string> renamed(const std::string& name) const;
  /// Whether a parameter of the model with this name is taken from the folder.
  bool takes(const std::string& name) const;
};

/// Builds the model that `config` specifies; with model_name_or_path its weights are read (fp32), otherwise they are
/// initialized from `seed` by Hugging Face's rule. A folder of LoRA adapters (PEFT) loads its base model with them
/// (lora.h). If the folder lacks an encoder's head, the head is initialized from `seed`, with a warning. Missing,
/// unexpected and misshapen tensors are all listed in one InputError. `choice`: reads only these weights; not for a
/// folder of adapters.
std::shared_ptr<LanguageModel> load_language_model(const ModelConfig& config, std::uint64_t seed,
                                                   const ConfigEdit& edit = {}, const BlockChoice* choice = nullptr);
/// The model of a Hugging Face folder with its weights (fp32), or of an adapter folder with its base.
std::shared_ptr<LanguageModel> load_language_folder(const std::string& folder, std::uint64_t seed = 0,
                                                    const ConfigEdit& edit = {}, const BlockChoice* choice = nullptr);
/// Builds a model from an explicit config.json value (used by checkpoints); weights are initialized from `seed`.
std::shared_ptr<LanguageModel> make_language_model(const Value& hf_config, std::uint64_t seed);
/// Like load_language_model(), but without memory for the parameters (parallel/deferred/deferred.h), for an engine that
/// keeps only parts of them. With model_name_or_path nothing is read: `weights_folder` receives the folder whose
/// WeightSource has the values; empty: the parameters' own initializers have them. For a folder of adapters that is its
/// base model's folder, and load_adapters() (lora.h) reads the adapters' values. With vision_tower the model has memory
/// and all its values.
std::shared_ptr<LanguageModel> load_model_deferred(const ModelConfig& config, std::uint64_t seed,
                                                   std::string& weights_folder, const ConfigEdit& edit = {},
                                                   const BlockChoice* choice = nullptr);

/// The functions above for causal models; they throw InputError for other models.
std::shared_ptr<CausalLm> load_model(const ModelConfig& config, std::uint64_t seed);
std::shared_ptr<CausalLm> load_folder(const std::string& folder);
std::shared_ptr<CausalLm> make_model(const Value& hf_config, std::uint64_t seed);

/// The weights of a folder, matched with a model's parameters, to be read piece by piece. Nothing is read before it is
/// requested; pieces that are not requested never become resident. Any number of threads may read.
class WeightSource {
 public:
  /// Missing, unexpected and misshapen tensors are all listed in one InputError, as in load_weights. `model` may be
  /// without memory. Ignores parameters for which `skip` returns true: read() returns false for them.
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
  std::vector<checkpoint::PieceReader> readers_;  // readers of the folder's files
  std::map<std::string, const format::SafetensorsFolder::Stored*> stored_;
};

/// Allocates and fills a parameter of load_model_deferred(): from `weights` or, if they are null or lack it, from its
/// initializers. Leaves a parameter that already has memory unchanged.
void fill_parameter(const std::string& name, const at::Tensor& parameter, const WeightSource* weights);
/// Same for all parameters of `model`.
void fill_parameters(LanguageModel& model, const WeightSource* weights);

/// Overwrites the weights from a folder with model.safetensors (or a sharded index).
void load_weights(LanguageModel& model, const std::string& folder, const std::shared_ptr<format::ReadSums>& sums = {},
                  const BlockChoice* choice = nullptr);
/// Same for a module that is not a language model but has the parameter names of `hf_config`'s architecture.
void load_weights(torch::nn::Module& module, const Value& hf_config, const std::string& folder,
                  const std::shared_ptr<format::ReadSums>& sums = {}, const BlockChoice* choice = nullptr);
/// Presets for --config_name: "gpt2", "gpt2-tiny", "llama-tiny".
Value preset(const std::string& name);

}  // namespace tessera::models
