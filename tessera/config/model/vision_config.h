#pragma once
/// \file
/// config.json of models that see images, as models and the planner read it: CLIP's tower (CLIPVisionConfig), LLaVA's
/// parts (LlavaConfig in the spelling of transformers 4 or 5), and the one that --vision_tower makes of two.

#include <tessera/base/value.h>

#include <cstdint>
#include <string_view>

namespace tessera {
struct ModelConfig;
}

namespace tessera::config {

struct ClipVisionConfig {
  std::int64_t hidden = 768, intermediate = 3072, layers = 12, heads = 12, image_size = 224, patch_size = 32;
  bool quick_gelu = true;  ///< x sigmoid(1.702 x); false: gelu, exact
  double eps = 1e-5, initializer_range = 0.02;
  std::int64_t patches() const { return (image_size / patch_size) * (image_size / patch_size); }
};

/// A CLIPVisionConfig; what it leaves out is as in transformers. Throws InputError "file:line:column: ..." for another
/// model_type, sizes that do not fit one another, and what would change the computation (dropout, other activations).
ClipVisionConfig parse_clip_vision_config(const Value& json);

struct LlavaParts {
  ClipVisionConfig vision;
  Value text;                        ///< config.json of the decoder, complete
  std::int64_t image_token = 32000;  ///< may be at least the vocabulary's size: it is never looked up
  std::int64_t feature_blocks = 0;   ///< features are the hidden states after so many of the tower's blocks
  bool with_class = false;           ///< the class's row is a feature, too (vision_feature_select_strategy "full")
  std::int64_t projections = 2;  ///< maps of the projector; another number than 2 is "mm_projector_type" in config.json
  bool projector_bias = true;

  std::int64_t tokens() const { return vision.patches() + (with_class ? 1 : 0); }  ///< an image's, in a row
};

/// What vision_config and a text_config of type llama or mistral leave out is as in transformers. Throws InputError
/// "file:line:column: ..." for decoders other than llama, mistral, qwen2 and qwen3, several feature layers, and numbers
/// out of range.
LlavaParts parse_llava_parts(const Value& json);

/// How many linear maps a projector of LLaVA's word "linear" or "mlpNx_gelu" has. Throws InputError for other words.
std::int64_t projections_of(std::string_view mm_projector_type);

/// Whether a config.json is that of a model that sees images.
bool sees_images(const Value& hf_config);

/// The config.json of such a model, of a language model's and a CLIP folder's (a CLIPModel's or its vision part's). A
/// projector that transformers does not have (another one than mlp2x_gelu) is kept as "mm_projector_type".
Value compose_llava_config(const Value& language, const Value& tower, const ModelConfig& config);

}  // namespace tessera::config
