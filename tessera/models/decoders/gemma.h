#pragma once
/// \file
/// decoders/: families that are Llama's modules (llama.h) by other values, with what little is their own. This header:
/// Gemma 1, 2 and 3, text (Gemma Team 2024, 2024, 2025), as transformers/models/{gemma,gemma2,gemma3}/modeling_*.py
/// compute them: norms by 1 + weight, embeddings times sqrt(C), GELU gates; from 2 on norms on both sides, windows in
/// some of the layers, soft-caps (2), norms of q and k and a rotation of their own for windows (3).

#include <tessera/models/llama_config.h>

namespace tessera::models {

/// Throw InputError as parse_llama_config does.
LlamaConfig parse_gemma_config(const Value& json);
LlamaConfig parse_gemma2_config(const Value& json);
LlamaConfig parse_gemma3_config(const Value& json);

}  // namespace tessera::models
