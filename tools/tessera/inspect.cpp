// Determines the contents of a model folder or file, from headers and JSON alone.

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/format/gguf/gguf.h>
#include <tessera/format/gguf/gguf_tokenizer.h>
#include <tessera/format/safetensors/safetensors_index.h>
#include <tools/tessera/inspect_folder.h>
#include <tools/tessera/inspection.h>

#include <algorithm>
#include <fstream>
#include <map>

namespace tessera::tool {
namespace {

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string thousands(std::uint64_t n) {
  std::string text = std::to_string(n);
  for (std::size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

/// Adds parameters, bytes and dtypes of `found.tensors`.
void add_totals(Inspection& found, const std::string& stored_in) {
  struct Sum {
    std::int64_t tensors = 0;
    std::uint64_t bytes = 0;
  };
  std::map<std::string, Sum> by_dtype;
  std::uint64_t parameters = 0, bytes = 0;
  for (const InspectedTensor& tensor : found.tensors) {
    std::uint64_t elements = 1;
    for (std::int64_t n : tensor.shape) elements *= static_cast<std::uint64_t>(n);
    parameters += elements;
    bytes += tensor.bytes;
    Sum& sum = by_dtype[tensor.dtype];
    ++sum.tensors;
    sum.bytes += tensor.bytes;
  }
  std::vector<std::string> parts;
  Value dtypes = Value::make_object();
  for (const auto& [dtype, sum] : by_dtype) {
    parts.push_back(by_dtype.size() == 1
                        ? dtype
                        : concat(dtype, " (", sum.tensors, sum.tensors == 1 ? " tensor, " : " tensors, ",
                                 format_bytes(sum.bytes), ")"));
    dtypes.set(dtype, Value::make_object({{"tensors", Value::of(sum.tensors)},
                                          {"bytes", Value::of(static_cast<std::int64_t>(sum.bytes))}}));
  }
  found.fact("parameters", concat(format_count(static_cast<double>(parameters)), " (", thousands(parameters), ") in ",
                                  found.tensors.size(), found.tensors.size() == 1 ? " tensor" : " tensors"));
  found.fact("weights", concat(stored_in, stored_in.empty() ? "" : ", ", format_bytes(bytes), parts.empty() ? "" : ": ",
                               join(parts)));
  found.set("parameters", Value::of(static_cast<std::int64_t>(parameters)));
  found.set("tensors", Value::of(static_cast<std::int64_t>(found.tensors.size())));
  found.set("bytes", Value::of(static_cast<std::int64_t>(bytes)));
  found.set("dtypes", std::move(dtypes));
}

void add_safetensors(Inspection& found, const format::SafetensorsFolder& weights) {
  for (const auto& stored : weights.tensors())
    found.tensors.push_back({stored.info.name, format::dtype_name(stored.info.dtype), stored.info.shape,
                             stored.info.end - stored.info.begin});
  const auto paths = weights.paths();
  add_totals(found, paths.size() == 1 ? file_name(paths[0]) : concat(paths.size(), " shards"));
  found.set("files", Value::of(static_cast<std::int64_t>(paths.size())));
}

Inspection inspect_weights(const std::string& path) {
  Inspection found;
  const format::SafetensorsFolder weights(path);
  found.kind = weights.sharded() ? "sharded safetensors" : "safetensors file";
  add_safetensors(found, weights);
  for (const auto& [key, value] : weights.files()[0].metadata()) found.fact(key, value);
  return found;
}

void add_shape_facts(Inspection& found, const format::GgufFile& file, const std::string& prefix) {
  struct Row {
    const char *key, *name, *label;
  };
  static const std::vector<Row> rows = {{"block_count", "layers", "layers"},
                                        {"embedding_length", "hidden_size", "hidden size"},
                                        {"feed_forward_length", "intermediate_size", "MLP size"},
                                        {"attention.head_count", "heads", "heads"},
                                        {"attention.head_count_kv", "kv_heads", "key/value heads"},
                                        {"attention.key_length", "head_dim", "head size"},
                                        {"context_length", "context_length", "context"}};
  for (const Row& row : rows) {
    const format::GgufValue* value = file.value(prefix + row.key);
    if (value == nullptr || value->type == format::GgufType::array) continue;  // some models have one value per layer
    const std::int64_t n = *file.integer(prefix + row.key);
    found.fact(row.label, std::to_string(n));
    found.set(row.name, Value::of(n));
  }
}

Inspection inspect_gguf(const std::string& path) {
  Inspection found;
  const format::GgufFile file(path);
  found.kind = concat("GGUF file, version ", file.header().version);
  const std::string architecture(file.text("general.architecture").value_or(""));
  if (const auto name = file.text("general.name")) {
    found.fact("name", std::string(*name));
    found.set("name", Value::of(std::string(*name)));
  }
  found.fact("architecture", architecture.empty() ? "not specified" : architecture);
  found.set("architecture", Value::of(architecture));
  for (const auto& tensor : file.tensors())
    found.tensors.push_back(
        {tensor.name, format::ggml_type_info(tensor.type).name, tensor.shape, tensor.end - tensor.begin});
  add_totals(found, "");
  add_shape_facts(found, file, architecture + ".");
  if (const format::GgufValue* tokens = file.value("tokenizer.ggml.tokens")) {
    found.fact("vocabulary", concat(tokens->count, " tokens"));
    found.set("vocab_size", Value::of(static_cast<std::int64_t>(tokens->count)));
  }
  const std::string tokenizer = format::gguf_tokenizer_kind(file);
  found.fact("tokenizer", concat(tokenizer.empty() ? "none" : tokenizer,
                                 file.has("tokenizer.chat_template") ? ", chat template" : ""));
  found.set("tokenizer", tokenizer.empty() ? Value() : Value::of(tokenizer));
  if (const auto license = file.text("general.license")) {
    found.fact("license", std::string(*license));
    found.set("license", Value::of(std::string(*license)));
  }
  return found;
}

Inspection inspect_folder(const std::string& folder) {
  Inspection found;
  const auto has = [&](const char* name) { return path_exists(path_join(folder, name)); };
  if (has("adapter_config.json")) {
    found.kind = "PEFT adapter folder";
    add_adapter(found, folder);
    if (has("adapter_model.safetensors"))
      add_safetensors(found, format::SafetensorsFolder(folder, "adapter_model"));
    else
      found.fact("weights", "none (no adapter_model.safetensors)");
  } else if (has("model.safetensors") || has("model.safetensors.index.json") || has("config.json")) {
    found.kind = "Hugging Face model folder";
    if (has("config.json")) add_model_config(found, folder);
    if (has("model.safetensors") || has("model.safetensors.index.json"))
      add_safetensors(found, format::SafetensorsFolder(folder));
    else
      found.fact("weights", "none (no model.safetensors)");
  } else {
    std::vector<std::string> inside;
    for (const std::string& name : list_folder(folder))
      if (name.ends_with(".gguf") || name.ends_with(".safetensors") || name.starts_with("checkpoint-"))
        inside.push_back(name);
    throw InputError(concat(folder, ": contains no model: no config.json, model.safetensors or adapter_config.json",
                            inside.empty() ? "" : concat("; inspect one of these: ", join(inside))));
  }
  add_tokenizer(found, folder);
  add_training_state(found, folder);
  return found;
}

bool begins_with_gguf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  char magic[4] = {};
  return file.read(magic, 4) && std::string_view(magic, 4) == "GGUF";
}

Inspection inspect_path(const std::string& path) {
  if (!path_exists(path)) throw InputError(concat("'", path, "' does not exist"));
  if (is_directory(path)) return inspect_folder(path);
  if (path.ends_with(".gguf") || begins_with_gguf(path)) return inspect_gguf(path);
  if (path.ends_with(".safetensors") || path.ends_with(".index.json")) return inspect_weights(path);
  throw InputError(concat("'", path,
                          "' is not a file that inspect reads: expected .gguf, .safetensors, .safetensors.index.json, ",
                          "or a folder with a model, a checkpoint or a PEFT adapter"));
}

}  // namespace

Inspection inspect(const std::string& path) {
  Inspection found = inspect_path(path);
  found.path = path;
  return found;
}

}  // namespace tessera::tool
