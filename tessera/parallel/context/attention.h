#pragma once
/// \file
/// Self-attention over sequences whose tokens are divided among several ranks, for models and for any user module:
///
///   const auto groups = tessera::context_groups(tessera::world(), mesh, tessera::ContextMethod::p2p);
///   const at::Tensor mine = tessera::context_part(ids, groups);            // [B, T] -> [B, T / c]
///   ...
///   y = tessera::context_attention(q, k, v, groups);                       // instead of scaled_dot_product_attention

#include <ATen/core/Tensor.h>

#include <tessera/nn/attention/dropout_attention.h>
#include <tessera/nn/attention_call.h>
#include <tessera/parallel/context/groups.h>

#include <cstdint>
#include <vector>

namespace tessera {

/// Options of attention.
struct ContextAttentionOptions {
  double scale = 0;         ///< factor of q k^T; 0: 1 / sqrt(D)
  double softcap = 0;       ///< scores are soft-capped at this before the mask (nn/softcap.h); 0: no cap
  bool causal = true;       ///< no token attends to a later token of its row
  std::int64_t window = 0;  ///< causal: a token attends to itself and window - 1 tokens before it; 0: all before it
  /// Flat positions b T + t in the whole rows at which documents begin, ascending; a token attends only to its
  /// document. Empty: every row is one document.
  nn::DocumentStarts documents = {};
  /// Non-padding tokens of each whole row (later keys are masked); empty: all. A query that attends to nothing has
  /// output 0 and no gradient.
  std::vector<std::int64_t> lengths = {};
  /// Dropout of the weights, by position: the same on any number of ranks. Only key, row and head of `place` are used
  /// (the first of q's rows and heads); tokens are those of this rank.
  nn::WeightDropout dropout = {};
};

/// softmax(softcap(q k^T * scale) + mask) v per head over the whole rows. q [B, t, heads, D]; k, v [B, t, key heads,
/// D], key heads dividing heads; t = T / c tokens of each row, this rank's tokens by layout::tokens_of(), in that
/// order. Returns [B, t, heads * D]. The three have one type (fp32, fp64, bf16, fp16; under autocast they are cast to
/// its type) and are on the CPU; sums between blocks are computed in fp32 or fp64. Differentiable once; forward and
/// backward are collective over groups.all: all its ranks call with equal shapes and options, and run backward, in the
/// same order. One thread at a time. Never allocates a T x T or T x t matrix.
///
/// Bytes that a rank sends per call (n bytes of its q, m of its k and v together, in fp32 or wider types; c ranks):
///   p2p, all_gather   forward (c-1) m   backward 2 (c-1) m     (p2p: less if windows or documents limit attention)
///   a2a               forward and backward (c-1)/c (2 n + m') each, m' = m max(1, c / key heads)
///   a2a+p2p           both, at their levels: rings of c / a ranks with blocks of m', a2a among a ranks
///
/// Throws InputError, before anything is sent, for shapes that do not fit: heads that are not divisible by the ranks of
/// the all-to-all, key heads that are neither a multiple nor a divisor of them, T that cannot be cut.
at::Tensor context_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const ContextGroups& groups,
                             const ContextAttentionOptions& options = {});

/// This rank's tokens of whole rows x [B, T, ...]: [B, T / c, ...], a copy. Throws InputError when T cannot be cut.
at::Tensor context_part(const at::Tensor& x, const ContextGroups& groups);

/// context_attention() with the signature that models call (LanguageModel::set_attention).
nn::AttentionFunction context_attention_function(const ContextGroups& groups);

}  // namespace tessera
