#pragma once
/// \file
/// Causal self-attention.

#include <ATen/core/Tensor.h>

#include <tessera/nn/documents.h>
#include <tessera/nn/dropout.h>

namespace tessera::nn {

/// Options of attention.
struct AttentionOptions {
  double scale = 1;         ///< factor of q k^T
  double softcap = 0;       ///< scores are soft-capped at this before the mask (softcap.h); 0: no cap
  std::int64_t window = 0;  ///< a token attends to itself and window - 1 tokens before it; 0: all before it
  double dropout = 0;       ///< dropout of the attention weights (dropout_attention.h)
  RandomPlace random = {};  ///< position of the queries, for dropout
};

/// softmax(softcap(q k^T * scale) + mask) v per head, where a token attends to the tokens of its document up to itself.
/// q [B, T, heads, D]; k, v [B, T, key heads, D], key heads dividing heads: query head h reads key head
/// h * key heads / heads (grouped-query attention, Ainslie et al. 2023). Returns [B, T, heads * D].
/// The cost is proportional to what documents and windows contain: token pairs outside of them are not multiplied.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const DocumentStarts& documents,
                     const AttentionOptions& options);

/// The same for a packed qkv [B, T, 3 C] of all queries, then keys, then values (GPT-2's c_attn); head h of C = heads *
/// D is columns [h D, (h+1) D). Returns [B, T, C].
at::Tensor packed_attention(const at::Tensor& qkv, std::int64_t heads, const DocumentStarts& documents,
                            const AttentionOptions& options);

/// The same if the T queries continue keys and values [B, key heads, P + T, D] (generation; not differentiable). q [B,
/// T, heads, D]. Returns [B, T, heads * D].
at::Tensor cached_attention(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                            const AttentionOptions& options);

/// The position of every token in its document, int64 [B * T].
at::Tensor document_positions(const DocumentStarts& documents, std::int64_t rows, std::int64_t length);
/// Throws Error unless `documents` is empty or an ascending list of positions in [0, rows * length) that contains the
/// start of every row.
void check_documents(const DocumentStarts& documents, std::int64_t rows, std::int64_t length);

}  // namespace tessera::nn
