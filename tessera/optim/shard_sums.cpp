#include <tessera/optim/shard_sums.h>

namespace tessera::optim {

std::size_t ShardSums::put(const ExactSum& sum) {
  const std::size_t place = values_.size();
  for (const std::int64_t word : sum.words()) values_.push_back(static_cast<double>(word));
  return place;
}

std::size_t ShardSums::put(std::span<const double> values) {
  const std::size_t place = values_.size();
  values_.insert(values_.end(), values.begin(), values.end());
  return place;
}

void ShardSums::exchange() {
  if (sum_over_shards_) sum_over_shards_(values_);
}

double ShardSums::exact(std::size_t place) const {
  std::vector<std::int64_t> words;
  for (std::size_t i = 0; i < ExactSum::word_count; ++i) words.push_back(static_cast<std::int64_t>(values_[place + i]));
  return ExactSum::of_words(words).value();
}

std::span<double> ShardSums::values(std::size_t place, std::size_t count) {
  return std::span<double>(values_).subspan(place, count);
}

ExactSum squares_of_tensor(const at::Tensor& x) { return squares_of({{x, 0}}); }

}  // namespace tessera::optim
