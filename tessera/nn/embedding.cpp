#include <tessera/nn/embedding.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/nn/attention.h>

namespace tessera::nn {

at::Tensor embed(const at::Tensor& ids, const at::Tensor& tokens, const at::Tensor& positions,
                 std::int64_t first_position, const DocumentStarts& documents) {
  TESSERA_CHECK(ids.dim() == 2, "embed expects ids [B, T], got ", ids.dim(), " dimensions");
  const std::int64_t t = ids.size(1), end = first_position + t;
  TESSERA_CHECK(end <= positions.size(0), "positions up to ", end, " asked of a table of ", positions.size(0));
  if (!documents.empty()) {
    const at::Tensor places = document_positions(documents, ids.size(0), t).view_as(ids).to(ids.device());
    return at::embedding(tokens, ids) + at::embedding(positions, places);
  }
  return at::embedding(tokens, ids) + positions.slice(0, first_position, end);
}

}  // namespace tessera::nn
