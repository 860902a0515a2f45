#pragma once
/// \file
/// The config.json that --vision_tower makes of two (architectures/families/llava.cpp reads it).

#include <tessera/base/value.h>

namespace tessera {
struct ModelConfig;
}

namespace tessera::config {

/// The config.json of a model that sees images, of a language model's and a CLIP folder's (a CLIPModel's or its vision
/// part's). A projector that transformers does not have (another one than mlp2x_gelu) is kept as "mm_projector_type".
Value compose_llava_config(const Value& language, const Value& tower, const ModelConfig& config);

}  // namespace tessera::config
