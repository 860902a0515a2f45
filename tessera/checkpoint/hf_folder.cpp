// The Hugging Face half of a checkpoint: weights, configuration, tokenizer.

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/checkpoint/files.h>
#include <tessera/checkpoint/tensor_bridge.h>

namespace tessera::checkpoint {
namespace {

NamedTensors read_all(const format::SafetensorsFile& file) {
  NamedTensors tensors;
  tensors.reserve(file.tensors().size());
  for (const format::TensorInfo& info : file.tensors()) tensors.emplace_back(info.name, read_tensor(file, info));
  return tensors;
}

// {"metadata": {"total_size": n}, "weight_map": {tensor: file}}. All headers are checked before any tensor is
// allocated.
NamedTensors read_sharded(const std::string& folder, const std::string& index_path) {
  const Value index = read_json(index_path);
  const Value& weight_map = index.at("weight_map");
  std::map<std::string, format::SafetensorsFile> shards;
  for (const auto& [tensor, file] : weight_map.members()) {
    const std::string& name = file.as_string();
    if (!format::is_plain_file_name(name)) {
      throw InputError(concat(file.where().str(), ": tensor '", tensor, "' is in '", name,
                              "': a shard must be a file directly inside the folder"));
    }
    if (!shards.contains(name)) shards.emplace(name, format::SafetensorsFile(path_join(folder, name)));
    if (shards.at(name).find(tensor) == nullptr) {
      throw InputError(concat(file.where().str(), ": tensor '", tensor, "' is not in ", shards.at(name).path(),
                              ": index and shards do not belong together"));
    }
  }
  std::size_t stored = 0;
  for (const auto& [name, file] : shards) stored += file.tensors().size();
  if (stored > weight_map.members().size()) {
    log::warning(index_path, ": the shards hold ", stored, " tensors, the index lists ", weight_map.members().size(),
                 ": the other ones are not read");
  }
  NamedTensors tensors;
  tensors.reserve(weight_map.members().size());
  for (const auto& [tensor, file] : weight_map.members()) {
    const format::SafetensorsFile& shard = shards.at(file.as_string());
    tensors.emplace_back(tensor, read_tensor(shard, *shard.find(tensor)));
  }
  return tensors;
}

// What transformers derives from a model's configuration: the token ids that generation starts and stops with.
Value generation_config(const Value& config) {
  Value generation = Value::make_object({{"_from_model_config", Value::of(true)}});
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id", "transformers_version"}) {
    const Value* value = config.find(key);
    if (value != nullptr && !value->is_null()) generation.set(key, *value);
  }
  return generation;
}

}  // namespace

NamedTensors read_hf_weights(const std::string& folder) {
  if (!is_directory(folder))
    throw InputError(concat(folder, ": no such folder; expected one that holds ", kWeightsFile));
  const std::string single = path_join(folder, kWeightsFile), index = path_join(folder, kWeightsIndexFile);
  if (path_exists(single)) return read_all(format::SafetensorsFile(single));
  if (path_exists(index)) return read_sharded(folder, index);
  const bool pickled = path_exists(path_join(folder, "pytorch_model.bin")) ||
                       path_exists(path_join(folder, "pytorch_model.bin.index.json"));
  throw InputError(
      concat(folder, ": holds neither ", kWeightsFile, " nor ", kWeightsIndexFile,
             pickled ? "; its pytorch_model.bin is a pickle, which is never read: save it again as safetensors" : ""));
}

format::ManifestFile write_json_file(const std::string& folder, const char* name, const Value& value) {
  const std::string text = dump_json(value) + "\n";
  write_file_atomically(path_join(folder, name), text);
  return {name, format::digest_of(std::as_bytes(std::span(text)))};
}

format::ManifestFile write_tensors_file(const std::string& folder, const char* name, const NamedTensors& tensors) {
  std::vector<format::TensorSource> sources;
  sources.reserve(tensors.size());
  for (const auto& [tensor_name, tensor] : tensors) sources.push_back(tensor_source(tensor_name, tensor));
  return {name, format::write_safetensors(path_join(folder, name), std::move(sources))};
}

WrittenFiles write_hf_files(const std::string& folder, const NamedTensors& weights, const Value& config,
                            const text::Tokenizer* tokenizer) {
  WrittenFiles written;
  if (tokenizer != nullptr) {  // it writes files of its own names: whatever is new afterwards is its
    const std::vector<std::string> before = list_folder(folder);
    tokenizer->save(folder);
    for (const std::string& name : list_folder(folder)) {
      if (std::binary_search(before.begin(), before.end(), name)) continue;
      written.push_back({name, format::digest_of_file(path_join(folder, name))});
    }
  }
  written.push_back(write_json_file(folder, kConfigFile, config));
  written.push_back(write_json_file(folder, kGenerationConfigFile, generation_config(config)));
  written.push_back(write_tensors_file(folder, kWeightsFile, weights));
  return written;
}

void write_hf_folder(const std::string& folder, const NamedTensors& weights, const Value& config,
                     const text::Tokenizer* tokenizer) {
  write_hf_files(folder, weights, config, tokenizer);
}

}  // namespace tessera::checkpoint
