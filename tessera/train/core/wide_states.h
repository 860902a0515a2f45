#pragma once
/// \file
/// Whose states stay in 32 bits when an optimizer keeps its states in 8.

#include <string>

namespace tessera::train {

/// Whether a parameter that LanguageModel::is_embedding() is true of gives logits (lm_head, GPT-NeoX's embed_out, the
/// decoder of BERT's head). Others are tables of embeddings: transformers' Trainer has bitsandbytes keep the states of
/// each nn.Embedding in 32 bits, and those of the head, an nn.Linear, in 8. A head that is tied is a table.
inline bool is_head(const std::string& parameter) {
  return parameter.ends_with("lm_head.weight") || parameter.ends_with("embed_out.weight") ||
         parameter.ends_with("decoder.weight");
}

}  // namespace tessera::train
