#include <tessera/architectures/tensor_names.h>

#include <tessera/architectures/architecture.h>
#include <tessera/architectures/config_value.h>

#include <charconv>
#include <string_view>

namespace tessera::architectures {

std::string llama_tensor_name(const std::string& name, const Value& config) {
  if (name.ends_with(".rotary_emb.inv_freq")) return {};
  if (name == "lm_head.weight") return flag(config, "tie_word_embeddings", false) ? std::string() : name;
  constexpr std::string_view list = "model.layers.";
  std::int64_t layer = 0;
  if (!name.starts_with(list) ||
      std::from_chars(name.data() + list.size(), name.data() + name.size(), layer).ec != std::errc())
    return name;
  const Value* const own = given(config, "num_hidden_layers");
  const std::int64_t depth = layer - (own ? own->as_int() : 0);  // negative: a block of the model itself
  if (own == nullptr || depth < 0) return name;
  if (depth >= prediction_depths(config))  // transformers ignores them as well
    return std::string_view(architecture_of(config).model_type) == "deepseek_v3" ? std::string() : name;
  // Copies of the model's own parameters.
  if (name.ends_with(".shared_head.head.weight") || name.ends_with(".embed_tokens.weight")) return {};
  return name;
}

std::string tied_tensor_name(const std::string& name, const Value& config) {
  if (name.ends_with(".rotary_emb.inv_freq")) return {};
  if (name == "lm_head.weight") return flag(config, "tie_word_embeddings", true) ? std::string() : name;
  return name;
}

}  // namespace tessera::architectures
