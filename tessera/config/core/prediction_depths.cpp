#include <tessera/config/core/prediction_depths.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

#include <algorithm>
#include <string>
#include <vector>

namespace tessera::config {

std::int64_t prediction_depths(const Value& hf_config) {
  const Value* const asked = hf_config.find("mtp_num_layers");
  if (asked == nullptr || asked->is_null()) return 0;
  const std::int64_t depths = asked->as_int();
  if (depths < 0 || depths > 16)
    throw InputError(concat(asked->where().str(), ": mtp_num_layers is ", depths, "; it must lie in [0, 16]"));
  if (depths == 0) return 0;
  static const std::vector<std::string> families = {"llama",     "mistral",   "mixtral", "qwen2",       "qwen3",
                                                    "qwen2_moe", "qwen3_moe", "olmoe",   "deepseek_v3", "megatron_gpt"};
  const Value* const type = hf_config.find("model_type");
  const std::string name = type != nullptr && type->is_string() ? type->as_string() : std::string();
  if (std::ranges::find(families, name) == families.end())
    throw InputError(concat(asked->where().str(), ": mtp_num_layers ", depths, ": a model of type \"", name,
                            "\" has no multi-token prediction; those that have it: ", join(families),
                            ". Leave mtp_num_layers out"));
  const Value* const positions = hf_config.find("position_embedding_type");
  const bool rotated = positions != nullptr && positions->is_string() && positions->as_string() == "rope";
  if (name == "megatron_gpt" && !rotated)
    throw InputError(concat(asked->where().str(), ": mtp_num_layers ", depths,
                            " beside learned positions: multi-token prediction needs rotated ones; use "
                            "position_embedding_type rope, or leave mtp_num_layers out"));
  return depths;
}

}  // namespace tessera::config
