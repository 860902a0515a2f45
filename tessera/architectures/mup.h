#pragma once
/// \file
/// Maximal update parameterization (Yang, Hu et al. 2022, "Tensor Programs V", table 8): initial weights, scores,
/// logits and learning rates that scale with the width so that activations and their changes per step keep their size;
/// the best learning rate of a narrow model then holds for a wide one. As in Megatron-LM
/// (megatron/core/transformer/transformer_config.py, megatron/core/optimizer/__init__.py, get_mup_config_overrides).
/// Members of config.json: use_mup, mup_base_hidden_size, mup_embedding_mult, mup_output_mult, mup_base_head_dim,
/// mup_attn_scale_power. Other programs, including transformers, ignore them.

#include <tessera/base/value.h>

#include <cstdint>
#include <optional>

namespace tessera::architectures {

/// A model's factors; m is its width divided by that of the model whose learning rate it uses.
struct Mup {
  double width = 1;       ///< m
  double embedding = 1;   ///< factor of the embeddings
  double logits = 1;      ///< factor of the logits; default 1 / m
  double base_head = 1;   ///< scores are multiplied by this
  double head_power = 1;  ///< scores are divided by the head size to this power

  double score_scale(std::int64_t head_size) const;  ///< factor of the scores of heads of this size
  /// Initial standard deviation of matrices other than embedding and head: std / sqrt(m); of those whose result is
  /// added to the residual stream, twice per block: std / sqrt(2 blocks m).
  double hidden_std(double std) const;
  double residual_std(double std, std::int64_t blocks) const;
};

/// Reads them from a config.json; nullopt without "use_mup": true. Throws InputError "file:line:column: ..." for a
/// member out of range.
std::optional<Mup> read_mup(const Value& json, std::int64_t hidden_size);

}  // namespace tessera::architectures
