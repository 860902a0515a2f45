#pragma once
/// \file
/// Selects the states that stay in 32 bits when an optimizer keeps its states in 8.

#include <string>

namespace tessera::train {

/// Whether a parameter for which LanguageModel::is_embedding() is true produces logits (lm_head, GPT-NeoX's embed_out,
/// the decoder of BERT's head). The others are embedding tables: transformers' Trainer makes bitsandbytes keep the
/// states of each nn.Embedding in 32 bits, and those of the head, an nn.Linear, in 8. A tied head counts as a table.
inline bool is_head(const std::string& parameter) {
  return parameter.ends_with("lm_head.weight") || parameter.ends_with("embed_out.weight") ||
         parameter.ends_with("decoder.weight");
}

}  // namespace tessera::train
