#include <tessera/train/inference/unigram.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include <tessera/base/error.h>

namespace tessera::train {

double unigram_entropy(const data::Dataset& dataset, std::int64_t vocabulary, std::int64_t max_tokens) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(vocabulary));
  std::int64_t tokens = 0;
  for (std::int64_t i = 0; i < dataset.size() && (i == 0 || tokens + dataset.length(i) <= max_tokens); ++i) {
    for (const std::int64_t id : dataset.read(i).labels) {
      if (id == -100) continue;  // not scored, as in a prompt
      TESSERA_CHECK(id >= 0 && id < vocabulary, "token id ", id, " of ", vocabulary);
      ++counts[static_cast<std::size_t>(id)];
      ++tokens;
    }
  }
  const auto total = static_cast<double>(tokens);
  double entropy = 0;
  for (const std::int64_t count : counts)
    if (count > 0) entropy -= static_cast<double>(count) / total * std::log(static_cast<double>(count) / total);
  return entropy;
}

}  // namespace tessera::train
