#pragma once
/// \file
/// The members of GPT-2's config.json that the model uses (transformers/models/gpt2/configuration_gpt2.py).

#include <tessera/base/value.h>
#include <tessera/models/activation.h>
#include <tessera/models/decoders/mup.h>
#include <cstdint>
#include <optional>

namespace tessera::models {

struct Gpt2Config {
  std::int64_t n_layer, n_embd, n_head, n_positions, vocab_size;  ///< needed
  std::int64_t n_inner;                                           ///< 4 n_embd when null or absent
  Activation activation = Activation::gelu_tanh;
  double resid_pdrop = 0.1, embd_pdrop = 0.1, attn_pdrop = 0.1;
  double layer_norm_epsilon = 1e-5, initializer_range = 0.02;
  bool tie_word_embeddings = true;
  bool scale_attn_weights = true, scale_attn_by_inverse_layer_idx = false;
  std::optional<Mup> mup;

  /// Factor of q k^T in layer `index`.
  double attention_scale(std::int64_t index) const;
};

/// Throws InputError "file:line:column: ..." on a missing key, a value out of range, n_embd not divisible by n_head, or
/// a member that would change the architecture in a way the model does not have.
Gpt2Config parse_gpt2_config(const Value& json);

}  // namespace tessera::models
