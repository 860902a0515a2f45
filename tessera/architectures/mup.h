#pragma once
/// \file
/// Maximal update parameterization (Yang, Hu et al. 2022, "Tensor Programs V", table 8): initial weights, scores,
/// logits and learning rates that follow the width in such a way that activations and their changes by a step keep
/// their size, so that the best learning rate of a narrow model is that of a wide one. As Megatron-LM has it
/// (megatron/core/transformer/transformer_config.py, megatron/core/optimizer/__init__.py, get_mup_config_overrides).
/// Members of config.json: use_mup, mup_base_hidden_size, mup_embedding_mult, mup_output_mult, mup_base_head_dim,
/// mup_attn_scale_power. Other programs do not know them, transformers among them.

#include <tessera/base/value.h>

#include <cstdint>
#include <optional>

namespace tessera::architectures {

/// What a model's factors are; m is its width over that of the model whose learning rate it takes.
struct Mup {
  double width = 1;       ///< m
  double embedding = 1;   ///< factor of the embeddings
  double logits = 1;      ///< factor of the logits: 1 / m where config.json says nothing else
  double base_head = 1;   ///< factor of the scores: this
  double head_power = 1;  ///< over the size of a head to this power

  double score_scale(std::int64_t head_size) const;  ///< factor of the scores of such heads
  /// The deviation that a matrix begins with, which is neither embedding nor head: std / sqrt(m); where it gives what
  /// is added to the residual stream, twice a block: std / sqrt(2 blocks m).
  double hidden_std(double std) const;
  double residual_std(double std, std::int64_t blocks) const;
};

/// What a config.json says; nothing without "use_mup": true. Throws InputError "file:line:column: ..." for a member out
/// of range.
std::optional<Mup> read_mup(const Value& json, std::int64_t hidden_size);

}  // namespace tessera::architectures
