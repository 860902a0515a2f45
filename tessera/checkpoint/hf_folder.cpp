// The Hugging Face half of a checkpoint: weights, configuration, tokenizer.

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <span>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/checkpoint/files.h>
#include <tessera/checkpoint/read_into.h>
#include <tessera/checkpoint/tensor_bridge.h>

namespace tessera::checkpoint {
namespace {

// The settings that transformers derives from a model's configuration: the token ids with which generation starts and
// stops.
Value generation_config(const Value& config) {
  Value generation = Value::make_object({{"_from_model_config", Value::of(true)}});
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id", "transformers_version"}) {
    const Value* value = config.find(key);
    if (value != nullptr && !value->is_null()) generation.set(key, *value);
  }
  return generation;
}

std::string text_of(const Value& value) { return dump_json(value) + "\n"; }

format::ManifestFile write_text_file(const std::string& folder, const char* name, const std::string& text) {
  write_file_atomically(path_join(folder, name), text);
  return {name, format::digest_of(std::as_bytes(std::span(text)))};
}

}  // namespace

NamedTensors read_hf_weights(const std::string& folder) {
  const format::SafetensorsFolder weights = open_hf_weights(folder);
  NamedTensors tensors;
  tensors.reserve(weights.tensors().size());
  for (const auto& stored : weights.tensors())
    tensors.emplace_back(stored.info.name, read_tensor(weights.files()[stored.file], stored.info));
  return tensors;
}

format::ManifestFile write_json_file(const std::string& folder, const char* name, const Value& value) {
  return write_text_file(folder, name, text_of(value));
}

TensorSources sources_of(const NamedTensors& tensors) {
  TensorSources sources;
  sources.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) sources.push_back(tensor_source(name, tensor));
  return sources;
}

format::ManifestFile write_tensors_file(const std::string& folder, const char* name, TensorSources tensors) {
  return {name, format::write_safetensors(path_join(folder, name), std::move(tensors))};
}

WrittenFiles write_tokenizer_files(const std::string& folder, const text::Tokenizer* tokenizer) {
  WrittenFiles written;
  if (tokenizer == nullptr) return written;
  // Only the tokenizer knows the names of its files, so it writes into a separate folder, because other ranks may be
  // writing into `folder` meanwhile. It writes twice: its bytes are not available here, so only a second copy can
  // reveal that one was corrupted on the way to the disk.
  const std::string apart = path_join(folder, ".tokenizer"), again = path_join(folder, ".tokenizer.again");
  for (const std::string& place : {apart, again}) {
    make_folders(place);
    tokenizer->save(place);
  }
  for (const std::string& name : list_folder(apart)) {
    const format::Digest digest = format::digest_of_file(path_join(apart, name));
    if (digest != format::digest_of_file(path_join(again, name)))
      throw Error(concat(path_join(folder, name),
                         ": two written copies differ: the disk, its controller or memory is failing"));
    const std::string path = path_join(folder, name);
    if (std::rename(path_join(apart, name).c_str(), path.c_str()) != 0)
      throw Error(concat("cannot rename to ", path, ": ", std::strerror(errno)));
    written.push_back({name, digest});
  }
  remove_tree(apart);
  remove_tree(again);
  return written;
}

WrittenFiles write_hf_settings(const std::string& folder, const Value& config, const text::Tokenizer* tokenizer,
                               const Value& preprocessor, const std::string& generation) {
  WrittenFiles written = write_tokenizer_files(folder, tokenizer);
  written.push_back(write_json_file(folder, kConfigFile, config));
  written.push_back(write_text_file(folder, kGenerationConfigFile,
                                    generation.empty() ? text_of(generation_config(config)) : generation));
  if (!preprocessor.is_null()) written.push_back(write_json_file(folder, kPreprocessorFile, preprocessor));
  return written;
}

bool is_weights_file(const std::string& name) {
  int number = 0, files = 0, end = 0;
  return name == kWeightsFile || name == kWeightsIndexFile ||
         (std::sscanf(name.c_str(), "model-%5d-of-%5d.safetensors%n", &number, &files, &end) == 2 &&
          end == static_cast<int>(name.size()));
}

bool is_model_file(const std::string& name) {
  return is_weights_file(name) || name == kConfigFile || name == kGenerationConfigFile || name == kAdapterConfigFile ||
         name == kAdapterWeightsFile || name == kPreprocessorFile;
}

void write_hf_folder(const std::string& folder, const NamedTensors& weights, const Value& config,
                     const text::Tokenizer* tokenizer, const Value& preprocessor, const std::string& generation) {
  write_hf_settings(folder, config, tokenizer, preprocessor, generation);
  write_tensors_file(folder, kWeightsFile, sources_of(weights));
}

}  // namespace tessera::checkpoint
