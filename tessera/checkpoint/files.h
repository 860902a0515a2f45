#pragma once
/// \file
/// The file names of a checkpoint folder and the functions that write it, each returning its files for the manifest.

#include <string>
#include <vector>

#include <tessera/checkpoint/checkpoint.h>
#include <tessera/format/manifest/manifest.h>

namespace tessera::checkpoint {

// Hugging Face's names.
inline constexpr const char* kConfigFile = "config.json";
inline constexpr const char* kGenerationConfigFile = "generation_config.json";
inline constexpr const char* kWeightsFile = "model.safetensors";
inline constexpr const char* kWeightsIndexFile = "model.safetensors.index.json";
// PEFT's names: adapters without their base model.
inline constexpr const char* kAdapterConfigFile = "adapter_config.json";
inline constexpr const char* kAdapterWeightsFile = "adapter_model.safetensors";
inline constexpr const char* kAdapterWeightsStem = "adapter_model";
inline constexpr const char* kAdapterPrefix = "base_model.model.";            // prefix of its tensors' names
inline constexpr const char* kPreprocessorFile = "preprocessor_config.json";  // image preprocessing
inline constexpr const char* kTrainerStateFile = "trainer_state.json";
// Ours. transformers refuses unknown keys in trainer_state.json, so the resume state has its own file.
inline constexpr const char* kRunStateFile = "tessera_state.json";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";
inline constexpr const char* kOptimizerStem = "optimizer";
inline constexpr const char* kOptimizerIndexFile =
    "optimizer.safetensors.index.json";  // location of the pieces: format/manifest/state_index.h

using WrittenFiles = std::vector<format::ManifestFile>;

/// Writes the tokenizer's files; none for nullptr.
WrittenFiles write_tokenizer_files(const std::string& folder, const text::Tokenizer* tokenizer);
/// Writes config.json, generation_config.json (the text `generation` or, if empty, the token ids of config.json),
/// preprocessor_config.json unless null, and the tokenizer's files: a model folder without its weights.
WrittenFiles write_hf_settings(const std::string& folder, const Value& config, const text::Tokenizer* tokenizer,
                               const Value& preprocessor = {}, const std::string& generation = {});
/// Writes trainer_state.json, if the state has one, and tessera_state.json, unless the checkpoint contains only the
/// model.
WrittenFiles write_run_state(const std::string& folder, const RunState& state);

/// Whether a file of that name contains weights of a whole model, or is their index: model.safetensors and
/// model-00001-of-00002.safetensors.
bool is_weights_file(const std::string& name);
/// Whether a file of that name is part of a model, whole or adapters; a tokenizer belongs to both.
bool is_model_file(const std::string& name);

/// Writes a JSON file atomically and computes the digest of the written text.
format::ManifestFile write_json_file(const std::string& folder, const char* name, const Value& value);
format::ManifestFile write_tensors_file(const std::string& folder, const char* name, TensorSources tensors);

}  // namespace tessera::checkpoint
