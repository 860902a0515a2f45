#include <tessera/parallel/replicas/rows_of_batch.h>

#include <ATen/ATen.h>

#include <numeric>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/data/to_device.h>

namespace tessera::parallel {

data::Batch RowsOf<data::Batch>::to(data::Batch rows, c10::Device device) {
  return data::to_device(std::move(rows), device);
}

std::int64_t RowsOf<data::Batch>::rows(const data::Batch& batch) { return batch.ids.size(0); }

data::Batch RowsOf<data::Batch>::slice(const data::Batch& batch, std::int64_t first, std::int64_t count) {
  if (batch.images.defined())  // a batch does not record which row an image belongs to
    throw InputError("DataParallel cannot divide a batch with images: give each process its own rows (DDP)");
  const std::int64_t length = batch.ids.size(1);
  data::Batch part;
  part.ids = batch.ids.narrow(0, first, count);
  part.labels = batch.labels.narrow(0, first, count);
  part.labels_not_ignored = part.labels.ne(-100).sum().item<std::int64_t>();
  if (batch.types.defined()) part.types = batch.types.narrow(0, first, count);
  if (batch.lengths.empty()) {
    part.tokens = count * length;
  } else {
    part.lengths.assign(batch.lengths.begin() + first, batch.lengths.begin() + first + count);
    part.tokens = std::accumulate(part.lengths.begin(), part.lengths.end(), std::int64_t{0});
  }
  if (batch.document_starts.empty()) {
    part.scored_tokens = length == 0 ? 0 : part.labels.narrow(1, 1, length - 1).ne(-100).sum().item<std::int64_t>();
    return part;
  }
  // The first token of a document is not scored, whatever its label.
  part.scored_tokens = part.labels_not_ignored;
  const at::Tensor labels = part.labels.cpu().contiguous();
  const auto* const label = labels.const_data_ptr<std::int64_t>();
  for (const std::int64_t start : batch.document_starts) {
    const std::int64_t at = start - first * length;
    if (at < 0 || at >= count * length) continue;
    part.document_starts.push_back(at);
    if (label[at] != -100) --part.scored_tokens;
  }
  return part;
}

}  // namespace tessera::parallel
