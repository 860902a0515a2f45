#pragma once
/// \file
/// Composes the config.json for --vision_tower from two others (architectures/families/llava.cpp reads it).

#include <tessera/base/value.h>

namespace tessera {
struct ModelConfig;
}

namespace tessera::config {

/// The config.json of a vision-language model, composed from a language model's and a CLIP folder's (of a CLIPModel or
/// its vision part). A projector that transformers does not have (other than mlp2x_gelu) is stored as
/// "mm_projector_type".
Value compose_llava_config(const Value& language, const Value& tower, const ModelConfig& config);

}  // namespace tessera::config
