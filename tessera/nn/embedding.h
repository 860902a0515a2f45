#pragma once
/// \file
/// Token plus position embedding.

#include <ATen/core/Tensor.h>

#include <tessera/nn/documents.h>

namespace tessera::nn {

/// Rows of a table: at::embedding. The next two are for a table cut over ranks (parameter_semantics.h), and give
/// x as it is for others: where the blocks work on a part of the tokens, the ends of a model work on all of them.
at::Tensor embed_tokens(const at::Tensor& table, const at::Tensor& ids, std::int64_t padding_idx = -1);
at::Tensor own_tokens(const at::Tensor& table, const at::Tensor& x);
at::Tensor all_tokens(const at::Tensor& table, const at::Tensor& x);
/// A pass begins with x, which own_tokens() gave in another process; `parameter`: any of this process that is cut.
void begin_with(const at::Tensor& parameter, const at::Tensor& x);
/// Index of the first token that own_tokens() gives of `tokens`; and, of a parameter that is cut, of the first element
/// along `dim` that this rank holds. 0 for others.
std::int64_t first_own_token(const at::Tensor& table, std::int64_t tokens);
std::int64_t first_own(const at::Tensor& parameter, int dim);

/// out[b, t] = tokens[ids[b, t]] + positions[p], p = first_position + t, or with documents the position in its
/// document. ids int64 [B, T]; tokens [V, C]; positions [P, C]. Returns [B, T, C]. An id outside [0, V) or a position
/// >= P throws Error.
at::Tensor embed(const at::Tensor& ids, const at::Tensor& tokens, const at::Tensor& positions,
                 std::int64_t first_position = 0, const DocumentStarts& documents = {});

/// The same at given places: int64 [T], of every row, or [B * T].
at::Tensor embed_at(const at::Tensor& ids, const at::Tensor& tokens, const at::Tensor& positions,
                    const at::Tensor& places);

}  // namespace tessera::nn
