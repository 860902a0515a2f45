#include <tessera/config/model/vision_config.h>

#include <tessera/architectures/config_value.h>
#include <tessera/architectures/vision.h>
#include <tessera/config/sections/model_config.h>

#include <string>
#include <utility>

namespace tessera::config {

Value compose_llava_config(const Value& language, const Value& tower, const ModelConfig& config) {
  Value vision = architectures::given(tower, "vision_config") ? *architectures::given(tower, "vision_config") : tower;
  if (!architectures::given(vision, "model_type")) vision.set("model_type", Value::of("clip_vision_model"));
  const std::string& type = config.mm_projector_type;
  architectures::projections_of(type);
  const bool full = config.mm_vision_select_feature == "cls_patch";
  Value json = Value::make_object({{"architectures", Value::make_array({Value::of("LlavaForConditionalGeneration")})},
                                   {"model_type", Value::of("llava")},
                                   {"text_config", language},
                                   {"vision_config", std::move(vision)},
                                   {"image_token_index", Value::of(architectures::positive(language, "vocab_size"))},
                                   {"projector_hidden_act", Value::of("gelu")},
                                   {"multimodal_projector_bias", Value::of(true)},
                                   {"vision_feature_layer", Value::of(config.mm_vision_select_layer)},
                                   {"vision_feature_select_strategy", Value::of(full ? "full" : "default")},
                                   {"tie_word_embeddings", Value::of(false)}});
  if (type != "mlp2x_gelu") json.set("mm_projector_type", Value::of(type));
  return json;
}

}  // namespace tessera::config
