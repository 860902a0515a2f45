#include <tessera/config/core/named_model.h>

#include <tessera/architectures/presets.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/config/core/overrides.h>
#include <tessera/config/sections/model_config.h>

#include <tuple>

namespace tessera::config {
namespace {

/// Adds use_mup and its options to a config.json.
Value with_mup(Value model, const ModelConfig& config) {
  if (!config.use_mup) return model;
  model.set("use_mup", Value::of(true));
  if (config.mup_base_hidden_size > 0) model.set("mup_base_hidden_size", Value::of(config.mup_base_hidden_size));
  const ModelConfig defaults;
  for (const auto& [key, value, otherwise] :
       {std::tuple("mup_embedding_mult", config.mup_embedding_mult, defaults.mup_embedding_mult),
        std::tuple("mup_output_mult", config.mup_output_mult, defaults.mup_output_mult),
        std::tuple("mup_base_head_dim", config.mup_base_head_dim, defaults.mup_base_head_dim),
        std::tuple("mup_attn_scale_power", config.mup_attn_scale_power, defaults.mup_attn_scale_power)})
    if (value != otherwise) model.set(key, Value::of(value));
  return model;
}

}  // namespace

Value with_settings(const Value& model, const ModelConfig& config) {
  return with_mup(with_overrides(model, config.config_overrides), config);
}

Value model_from_scratch(const ModelConfig& config) {
  const std::string& name = config.config_name;
  if (name.empty())
    throw InputError("no model: set model_name_or_path (a folder) or config_name (config.json or a preset)");
  const std::string path = is_directory(name) ? path_join(name, "config.json") : name;
  return with_settings(path_exists(path) ? read_json(path) : architectures::known_preset(name), config);
}

}  // namespace tessera::config
