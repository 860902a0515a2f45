#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/data/dataset.h>

namespace tessera::data {

Batch make_batch(const BlockDataset& dataset, const Sampler& sampler, std::int64_t first, std::int64_t rows) {
  TESSERA_CHECK(first >= 0 && rows >= 1, "batch of ", rows, " rows from sample ", first);
  const std::int64_t length = dataset.block_size();
  at::Tensor ids = at::empty({rows, length}, at::kLong);  // [rows, T]
  auto* out = ids.mutable_data_ptr<std::int64_t>();
  for (std::int64_t row = 0; row < rows; ++row) dataset.read(sampler(first + row), out + row * length);
  return {ids, ids.clone(), {}, rows * (length - 1), rows * length, rows * length};
}

}  // namespace tessera::data
