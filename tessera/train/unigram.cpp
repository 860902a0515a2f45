#include <tessera/train/unigram.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include <tessera/base/error.h>

namespace tessera::train {

double unigram_entropy(const data::BlockDataset& dataset, std::int64_t vocabulary, std::int64_t max_tokens) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(vocabulary));
  std::vector<std::int64_t> block(static_cast<std::size_t>(dataset.block_size()));
  const std::int64_t blocks = std::clamp<std::int64_t>(max_tokens / dataset.block_size(), 1, dataset.size());
  for (std::int64_t i = 0; i < blocks; ++i) {
    dataset.read(i, block.data());
    for (const std::int64_t id : block) {
      TESSERA_CHECK(id >= 0 && id < vocabulary, "token id ", id, " of ", vocabulary);
      ++counts[static_cast<std::size_t>(id)];
    }
  }
  const double total = static_cast<double>(blocks * dataset.block_size());
  double entropy = 0;
  for (const std::int64_t count : counts)
    if (count > 0) entropy -= static_cast<double>(count) / total * std::log(static_cast<double>(count) / total);
  return entropy;
}

}  // namespace tessera::train
