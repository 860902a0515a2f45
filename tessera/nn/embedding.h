#pragma once
/// \file
/// Token plus position embedding.

#include <ATen/core/Tensor.h>

#include <tessera/nn/documents.h>

namespace tessera::nn {

/// Rows of a table: at::embedding. The next two are for a table cut over ranks (parameter_semantics.h), and return x
/// unchanged for other tables: blocks may work on a part of the tokens, but the ends of a model work on all of them.
at::Tensor embed_tokens(const at::Tensor& table, const at::Tensor& ids, std::int64_t padding_idx = -1);
at::Tensor own_tokens(const at::Tensor& table, const at::Tensor& x);
at::Tensor all_tokens(const at::Tensor& table, const at::Tensor& x);
/// Starts a pass with x, which own_tokens() returned in another process; `parameter`: any cut parameter of this
/// process.
void begin_with(const at::Tensor& parameter, const at::Tensor& x);
/// first_own_token: index of the first of `tokens` that own_tokens() returns. first_own: index of the first element
/// along `dim` that this rank holds of a cut parameter. Both return 0 for other parameters.
std::int64_t first_own_token(const at::Tensor& table, std::int64_t tokens);
std::int64_t first_own(const at::Tensor& parameter, int dim);

/// out[b, t] = tokens[ids[b, t]] + positions[p], p = first_position + t, or with documents the position in its
/// document. ids int64 [B, T]; tokens [V, C]; positions [P, C]. Returns [B, T, C]. An id outside [0, V) or a position
/// >= P throws Error.
at::Tensor embed(const at::Tensor& ids, const at::Tensor& tokens, const at::Tensor& positions,
                 std::int64_t first_position = 0, const DocumentStarts& documents = {});

/// The same at given positions: int64 [T], shared by every row, or [B * T].
at::Tensor embed_at(const at::Tensor& ids, const at::Tensor& tokens, const at::Tensor& positions,
                    const at::Tensor& places);

}  // namespace tessera::nn
