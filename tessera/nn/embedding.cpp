#include <tessera/nn/embedding.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/nn/attention.h>
#include <tessera/nn/redirect.h>

namespace tessera::nn {

at::Tensor embed_tokens(const at::Tensor& table, const at::Tensor& ids, std::int64_t padding_idx) {
  if (const Redirect* cut = redirect_of(table)) return cut->embedding(table, ids, padding_idx, /*whole=*/true);
  return at::embedding(table, ids, padding_idx);
}

at::Tensor own_tokens(const at::Tensor& table, const at::Tensor& x) {
  const Redirect* const cut = redirect_of(table);
  return cut != nullptr ? cut->own_tokens(x) : x;
}

at::Tensor all_tokens(const at::Tensor& table, const at::Tensor& x) {
  const Redirect* const cut = redirect_of(table);
  return cut != nullptr ? cut->all_tokens(x) : x;
}

void begin_with(const at::Tensor& parameter, const at::Tensor& x) {
  if (const Redirect* const cut = redirect_of(parameter)) cut->begin_with(x);
}

std::int64_t first_own_token(const at::Tensor& table, std::int64_t tokens) {
  const Redirect* const cut = redirect_of(table);
  return cut != nullptr ? cut->first_token(tokens) : 0;
}

std::int64_t first_own(const at::Tensor& parameter, int dim) {
  const Redirect* const cut = redirect_of(parameter);
  return cut != nullptr ? cut->first_along(dim) : 0;
}

at::Tensor embed(const at::Tensor& ids, const at::Tensor& tokens, const at::Tensor& positions,
                 std::int64_t first_position, const DocumentStarts& documents) {
  TESSERA_CHECK(ids.dim() == 2, "embed expects ids [B, T], got ", ids.dim(), " dimensions");
  const std::int64_t t = ids.size(1), end = first_position + t;
  TESSERA_CHECK(end <= positions.size(0), "positions up to ", end, " asked of a table of ", positions.size(0));
  if (!documents.empty()) return embed_at(ids, tokens, positions, document_positions(documents, ids.size(0), t));
  return embed_tokens(tokens, ids) + positions.slice(0, first_position, end);
}

at::Tensor embed_at(const at::Tensor& ids, const at::Tensor& tokens, const at::Tensor& positions,
                    const at::Tensor& places) {
  return embed_tokens(tokens, ids) + at::embedding(positions, places.view({-1, ids.size(1)}).to(ids.device()));
}

}  // namespace tessera::nn
