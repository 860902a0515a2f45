#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/data/dataset.h>

namespace tessera::data {
namespace {

constexpr std::int64_t pad_id = 0;  // could be any valid id: nothing depends on it

/// x [rows, T] -> [rows, length].
at::Tensor filled_with(std::int64_t value, const at::Tensor& x, std::int64_t length) {
  return at::constant_pad_nd(x, {0, length - x.size(1)}, value);
}

}  // namespace

std::int64_t Dataset::tokens() const {
  std::int64_t tokens = 0;
  for (std::int64_t row = 0; row < size(); ++row) tokens += length(row);
  return tokens;
}

Batch filled_up(const Batch& batch, std::int64_t length) {
  const std::int64_t rows = batch.ids.size(0), tokens = batch.ids.size(1);
  TESSERA_CHECK(length >= tokens && !batch.part, "rows of ", tokens, " tokens filled up to ", length);
  if (length == tokens) return batch;
  Batch filled = batch;
  filled.ids = filled_with(pad_id, batch.ids, length);
  filled.labels = filled_with(not_scored, batch.labels, length);
  if (batch.types.defined()) filled.types = filled_with(0, batch.types, length);
  for (std::int64_t& start : filled.document_starts) start = start / tokens * length + start % tokens;
  if (filled.lengths.empty()) filled.lengths.assign(static_cast<std::size_t>(rows), tokens);
  return filled;
}

Batch make_batch(const Dataset& dataset, const Sampler& sampler, std::int64_t first, std::int64_t rows) {
  TESSERA_CHECK(first >= 0 && rows >= 1, "batch of ", rows, " rows from sample ", first);
  std::vector<std::int64_t> samples(static_cast<std::size_t>(rows));
  std::iota(samples.begin(), samples.end(), first);
  return make_batch(dataset, sampler, samples, first);
}

Batch make_batch(const Dataset& dataset, const Sampler& sampler, const std::vector<std::int64_t>& samples,
                 std::int64_t first) {
  TESSERA_CHECK(!samples.empty(), "a batch without rows");
  std::vector<Row> read;
  std::size_t length = 0, documents = 0;
  bool typed = false;
  for (const std::int64_t sample : samples) {
    read.push_back(dataset.read_sample(sampler(sample), sample));
    length = std::max(length, read.back().ids.size());
    documents += read.back().document_starts.size();
    typed |= !read.back().types.empty();
  }

  const std::vector<std::int64_t> shape = {static_cast<std::int64_t>(samples.size()),
                                           static_cast<std::int64_t>(length)};
  Batch batch;
  batch.ids = at::full(shape, pad_id, at::kLong);  // [rows, T]
  batch.labels = at::full(shape, not_scored, at::kLong);
  if (typed) batch.types = at::zeros(shape, at::kLong);
  auto* ids = batch.ids.mutable_data_ptr<std::int64_t>();
  auto* labels = batch.labels.mutable_data_ptr<std::int64_t>();
  for (std::size_t i = 0; i < read.size(); ++i) {
    const Row& row = read[i];
    std::copy(row.ids.begin(), row.ids.end(), ids + i * length);
    std::copy(row.labels.begin(), row.labels.end(), labels + i * length);
    const auto ignored = std::count(row.labels.begin(), row.labels.end(), not_scored);
    const auto counted = static_cast<std::int64_t>(row.labels.size()) - ignored;
    if (!row.types.empty())
      std::copy(row.types.begin(), row.types.end(), batch.types.mutable_data_ptr<std::int64_t>() + i * length);
    batch.tokens += static_cast<std::int64_t>(row.ids.size());
    batch.lengths.push_back(static_cast<std::int64_t>(row.ids.size()));
    batch.labels_not_ignored += counted;
    batch.scored_tokens += counted - (row.labels.front() != not_scored);
    if (documents == read.size()) continue;  // one document per row: no list needed
    for (const std::int64_t start : row.document_starts)
      batch.document_starts.push_back(static_cast<std::int64_t>(i * length) + start);
  }
  std::vector<std::string> images;
  for (const Row& row : read) images.insert(images.end(), row.images.begin(), row.images.end());
  return dataset.complete(std::move(batch), images, first);
}

Batch Dataset::complete(Batch batch, const std::vector<std::string>& images, std::int64_t /*first*/) const {
  TESSERA_CHECK(images.empty(), "rows with images, but no image reader");
  return batch;
}

}  // namespace tessera::data
