// Values that "auto" takes from the model (transformers/integrations/deepspeed.py, trainer_config_finalize).

#include <tessera/architectures/presets.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/config/core/overrides.h>
#include <tessera/config/deepspeed/deepspeed_reading.h>
#include <tessera/config/sections/model_config.h>

#include <algorithm>

namespace tessera::config::deepspeed {
namespace {

std::optional<std::int64_t> size(const Value& config, std::string_view key) {
  const Value* value = config.find(key);
  if (value == nullptr || !value->is_number()) return std::nullopt;
  const double real = value->as_real();
  return real >= 1 && real <= 1e7 && real == static_cast<double>(static_cast<std::int64_t>(real))
             ? std::optional(static_cast<std::int64_t>(real))
             : std::nullopt;
}

std::optional<std::int64_t> largest(const Value& config, std::string_view key) {
  const Value* value = config.find(key);
  std::optional<std::int64_t> most;
  if (value == nullptr || !value->is_array()) return most;
  for (const Value& item : value->items())
    if (item.is_number() && item.as_real() >= 1 && item.as_real() <= 1e7)
      most = std::max(most.value_or(0), static_cast<std::int64_t>(item.as_real()));
  return most;
}

/// config.json of the run's model; nullopt if it cannot be read.
std::optional<Value> model_config(const ModelConfig& model) {
  const bool from_weights = !model.model_name_or_path.empty();
  const std::string& name = from_weights ? model.model_name_or_path : model.config_name;
  if (name.empty()) return std::nullopt;
  if (!from_weights)
    if (auto preset = architectures::model_preset(name)) return preset;
  const std::string path = is_directory(name) ? path_join(name, "config.json") : name;
  if (!path_exists(path) || is_directory(path)) return std::nullopt;
  try {
    Value config = read_json(path, 16u << 20);
    return config.is_object() ? std::optional(std::move(config)) : std::nullopt;
  } catch (const InputError&) {
    return std::nullopt;  // reported when the model is loaded
  }
}

}  // namespace

HiddenSizeValues values_of(std::int64_t h) {
  return {h * h, static_cast<std::int64_t>(0.9 * static_cast<double>(h) * static_cast<double>(h)), 10 * h};
}

std::optional<std::int64_t> hidden_size_of(const Value& config) {
  if (!config.is_object()) return std::nullopt;
  if (const auto h = size(config, "hidden_size")) return h;
  if (const auto h = largest(config, "hidden_sizes")) return h;
  if (const Value* text = config.find("text_config"); text != nullptr && text->is_object()) {
    if (const auto h = size(*text, "hidden_size")) return h;
    if (const auto h = largest(*text, "hidden_sizes")) return h;
  }
  for (const char* key : {"n_embd", "d_model", "dim"})  // names in the attribute_map of GPT-2, T5 and DistilBERT
    if (const auto h = size(config, key)) return h;
  return std::nullopt;
}

std::optional<std::int64_t> hidden_size_of(const ModelConfig& model, const std::vector<std::string>& keys) {
  auto config = model_config(model);
  if (!config) return std::nullopt;
  try {
    if (model.model_name_or_path.empty())
      for (auto& [key, value] : parse_overrides(model.config_overrides)) config->set(key, value);
  } catch (const InputError&) {
    return std::nullopt;  // reported by validate()
  }
  if (const auto h = hidden_size_of(*config)) return h;
  throw InputError(
      concat("The model's config file has neither `hidden_size` nor `hidden_sizes` entry, therefore it's not possible "
             "to automatically fill "
             "out the following `auto` entries in the DeepSpeed config file: ",
             join(keys),
             ". You can fix that by replacing `auto` values for these keys with an integer value of your choice."));
}

}  // namespace tessera::config::deepspeed
