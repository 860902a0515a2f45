#include <tessera/checkpoint/peft.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/names/module_names.h>
#include <tessera/checkpoint/files.h>
#include <tessera/checkpoint/tensor_bridge.h>

namespace tessera::checkpoint {
namespace {

constexpr std::string_view kPrefix = kAdapterPrefix;

/// The parameter of a tensor in the file; empty: none.
std::string parameter_of(const format::TensorInfo& tensor) {
  std::string name = without_wrappers(tensor.name);
  if (!name.starts_with(kPrefix)) return "";
  name.erase(0, kPrefix.size());
  constexpr std::string_view inner = ".base_layer.";  // part of the names in a head with adapters
  if (const auto at = name.find(inner); at != std::string::npos) name.replace(at, inner.size(), ".");
  return name;
}

/// Opens adapter_model.safetensors, which must contain only adapters and parameters trained whole.
format::SafetensorsFile open_adapter_weights(const std::string& folder) {
  const LoraConfig config = read_adapter_config(folder);
  const std::string path = path_join(folder, kAdapterWeightsFile);
  if (!path_exists(path)) {
    const bool pickled = path_exists(path_join(folder, "adapter_model.bin"));
    throw InputError(concat(
        folder, ": has no ", kAdapterWeightsFile,
        pickled ? "; its adapter_model.bin is a pickle, which is never read: save it again as safetensors" : ""));
  }
  format::SafetensorsFile file(path);
  std::vector<std::string> problems;
  for (const format::TensorInfo& info : file.tensors()) {
    using format::DType;
    const bool floating =
        info.dtype == DType::f32 || info.dtype == DType::f64 || info.dtype == DType::f16 || info.dtype == DType::bf16;
    const std::string name = parameter_of(info);
    const bool known = is_adapter_name(name) || is_saved_whole(name, config) || is_embedding_name(name);
    if (!known)
      problems.push_back(concat("unexpected tensor ", info.name));
    else if (!floating)
      problems.push_back(
          concat(info.name, " is ", format::dtype_name(info.dtype), ", which is not a floating-point type"));
    if (problems.size() >= 20) break;
  }
  if (!problems.empty())
    throw InputError(concat(path, ": only ", kPrefix, "MODULE.lora_A.weight and .lora_B.weight are supported",
                            config.modules_to_save.empty() ? ""
                                                           : concat(", and the parameters of modules_to_save (",
                                                                    join(config.modules_to_save), ")"),
                            ":\n  ", join(problems, "\n  ")));
  if (file.tensors().empty()) throw InputError(concat(path, ": contains no adapters"));
  return file;
}

/// The members of adapter_config.json; PEFT itself fills in missing ones.
Value adapter_config(const LoraConfig& config) {
  std::vector<Value> targets, saved;
  for (const std::string& name : config.target_modules) targets.push_back(Value::of(name));
  for (const std::string& name : config.modules_to_save) saved.push_back(Value::of(name));
  const double whole = std::round(config.alpha);
  Value json = Value::make_object({
      {"auto_mapping", Value()},
      {"base_model_name_or_path", Value::of(config.base_model)},
      {"bias", Value::of("none")},
      {"fan_in_fan_out", Value::of(config.fan_in_fan_out)},
      {"inference_mode", Value::of(true)},
      {"init_lora_weights", Value::of(true)},
      {"layers_pattern", Value()},
      {"layers_to_transform", Value()},
      {"lora_alpha", whole == config.alpha ? Value::of(static_cast<std::int64_t>(whole)) : Value::of(config.alpha)},
      {"lora_dropout", Value::of(config.dropout)},
      {"modules_to_save", saved.empty() ? Value() : Value::make_array(std::move(saved))},
      {"peft_type", Value::of("LORA")},
      {"r", Value::of(config.r)},
      {"revision", Value()},
      {"target_modules", Value::make_array(std::move(targets))},
      {"task_type", Value::of("CAUSAL_LM")},
  });
  const auto patterns = [](const auto& list) {
    Value object = Value::make_object();
    for (const auto& [name, number] : list) object.set(name, Value::of(number));
    return object;
  };
  if (!config.alphas.empty()) json.set("alpha_pattern", patterns(config.alphas));
  if (!config.ranks.empty()) json.set("rank_pattern", patterns(config.ranks));
  if (config.target_modules.size() == 1 && is_module_pattern(config.target_modules[0]))
    json.set("target_modules", Value::of(config.target_modules[0]));
  if (config.ties_embeddings) json.set("ensure_weight_tying", Value::of(true));
  if (config.rank_stabilized) json.set("use_rslora", Value::of(true));  // older versions of PEFT do not know the member
  return json;
}

/// Same lookup as peft/utils/other.py get_pattern_key().
template <class Number>
Number number_for(const std::string& module, const std::vector<std::pair<std::string, Number>>& patterns,
                  Number otherwise) {
  for (const auto& [pattern, number] : patterns)
    if (is_meant_module(module, concat("(.*\\.)?(", pattern, ")"))) return number;
  return otherwise;
}

}  // namespace

std::int64_t LoraConfig::rank_of(const std::string& module) const { return number_for(module, ranks, r); }
double LoraConfig::alpha_of(const std::string& module) const { return number_for(module, alphas, alpha); }

double LoraConfig::scale_of(const std::string& module) const {
  const double rank = static_cast<double>(rank_of(module));
  return alpha_of(module) / (rank_stabilized ? std::sqrt(rank) : rank);
}

bool is_embedding_name(std::string_view parameter) {
  static constexpr std::array modules = {"embed_tokens", "wte", "embed_in", "word_embeddings", "lm_head", "embed_out"};
  return std::any_of(modules.begin(), modules.end(), [&](const char* module) {
    return is_named_module(parameter, concat(module, ".weight")) || is_named_module(parameter, concat(module, ".bias"));
  });
}

bool is_adapter_name(std::string_view name) {
  return name.ends_with(".lora_A.weight") || name.ends_with(".lora_B.weight");
}

bool is_saved_whole(std::string_view parameter, const LoraConfig& config) {
  return is_in_named_module(parameter, config.modules_to_save);
}

bool is_adapter_folder(const std::string& folder) { return path_exists(path_join(folder, kAdapterConfigFile)); }

NamedTensors read_adapter_weights(const std::string& folder,
                                  const std::function<bool(const std::string& name)>& wanted) {
  const format::SafetensorsFile file = open_adapter_weights(folder);
  NamedTensors adapters;
  for (const format::TensorInfo& info : file.tensors())
    if (const std::string name = parameter_of(info); !wanted || wanted(name))
      adapters.emplace_back(name, read_tensor(file, info));
  return adapters;
}

std::vector<std::string> adapter_names(const std::string& folder) {
  const format::SafetensorsFile file = open_adapter_weights(folder);
  std::vector<std::string> names;
  for (const format::TensorInfo& info : file.tensors()) names.push_back(parameter_of(info));
  return names;
}

std::int64_t adapter_vocabulary(const std::string& folder) {
  const format::SafetensorsFile file = open_adapter_weights(folder);
  for (const format::TensorInfo& info : file.tensors())
    if (is_embedding_name(parameter_of(info)) && !info.shape.empty()) return info.shape[0];
  return 0;
}

std::string base_model_folder(const std::string& adapter_folder, const LoraConfig& config) {
  const std::string where = path_join(adapter_folder, kAdapterConfigFile);
  if (config.base_model.empty())
    throw InputError(concat(where, ": base_model_name_or_path is missing: set it to the folder of the base model"));
  const std::filesystem::path name(config.base_model);
  const std::string beside = (std::filesystem::path(adapter_folder) / name).lexically_normal().string();
  std::string found = is_directory(beside) ? beside : config.base_model;  // the same folder if the name is absolute
  if (!is_directory(found))
    throw InputError(
        concat(where, ": base_model_name_or_path is \"", config.base_model, "\", but that folder does not exist",
               name.is_absolute() ? "" : concat(", neither as ", beside, " nor below the working directory"),
               " (nothing is downloaded): put the base model there or set it to its folder"));
  if (is_adapter_folder(found))
    throw InputError(
        concat(where, ": the base model ", found, " contains adapters itself; merge them first (--lora_merge)"));
  return found;
}

WrittenFiles write_adapter_settings(const std::string& folder, const LoraConfig& config,
                                    const text::Tokenizer* tokenizer) {
  WrittenFiles written = write_tokenizer_files(folder, tokenizer);
  if (!config.composition.is_null()) written.push_back(write_json_file(folder, "config.json", config.composition));
  written.push_back(write_json_file(folder, kAdapterConfigFile, adapter_config(config)));
  return written;
}

void write_adapter_folder(const std::string& folder, const NamedTensors& adapters, const LoraConfig& config,
                          const text::Tokenizer* tokenizer) {
  TensorSources sources = sources_of(adapters);
  for (format::TensorSource& source : sources) source.name = concat(kPrefix, source.name);
  write_tensors_file(folder, kAdapterWeightsFile, std::move(sources));
  write_adapter_settings(folder, config,
                         tokenizer);  // adapter_config.json is last: it marks the folder as one of adapters
}

}  // namespace tessera::checkpoint
