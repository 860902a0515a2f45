#pragma once
/// \file
/// The members of BERT's config.json that the model uses (transformers/models/bert/configuration_bert.py).

#include <tessera/base/value.h>
#include <tessera/models/activation.h>

#include <cstdint>

namespace tessera::models {

struct BertConfig {
  std::int64_t vocab_size, hidden_size, num_hidden_layers, num_attention_heads, max_position_embeddings;  ///< needed
  std::int64_t intermediate_size;  ///< 4 hidden_size when null or absent
  std::int64_t type_vocab_size = 2, pad_token_id = 0;
  Activation activation = Activation::gelu_erf;
  double hidden_dropout = 0.1, attention_dropout = 0.1, classifier_dropout = 0.1;
  double layer_norm_eps = 1e-12, initializer_range = 0.02;
  bool tie_word_embeddings = true;
  std::int64_t num_labels = 2;  ///< id2label's, else num_labels
};

/// Throws InputError "file:line:column: ..." on a missing key, a value out of range, hidden_size not divisible by
/// num_attention_heads, or a member that would change the architecture in a way the model does not have (a decoder,
/// relative positions).
BertConfig parse_bert_config(const Value& json);

}  // namespace tessera::models
