#pragma once
/// \file
/// The file names of a checkpoint folder and the parts that write it, each returning what it wrote for the manifest.

#include <string>
#include <vector>

#include <tessera/checkpoint/checkpoint.h>
#include <tessera/format/manifest.h>

namespace tessera::checkpoint {

// Hugging Face's names.
inline constexpr const char* kConfigFile = "config.json";
inline constexpr const char* kGenerationConfigFile = "generation_config.json";
inline constexpr const char* kWeightsFile = "model.safetensors";
inline constexpr const char* kWeightsIndexFile = "model.safetensors.index.json";
inline constexpr const char* kTrainerStateFile = "trainer_state.json";
// Ours. transformers refuses unknown keys in trainer_state.json, so what resumes a run has its own file.
inline constexpr const char* kRunStateFile = "tessera_state.json";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";

using WrittenFiles = std::vector<format::ManifestFile>;

WrittenFiles write_hf_files(const std::string& folder, const NamedTensors& weights, const Value& config,
                            const text::Tokenizer* tokenizer);
WrittenFiles write_run_state(const std::string& folder, const RunState& state);

/// Writes a JSON file atomically and digests the text that was written.
format::ManifestFile write_json_file(const std::string& folder, const char* name, const Value& value);
format::ManifestFile write_tensors_file(const std::string& folder, const char* name, const NamedTensors& tensors);

}  // namespace tessera::checkpoint
