// The order of the samples of a run, computed from (seed, epoch).

#include <algorithm>
#include <mutex>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/corpus/permutation.h>
#include <tessera/data/blend.h>
#include <tessera/data/dataset.h>

namespace tessera::data {
namespace {

using corpus::mix;
using corpus::permuted;

std::uint64_t epoch_key(std::uint64_t seed, std::int64_t epoch) {
  return mix(mix(seed) + static_cast<std::uint64_t>(epoch));
}

void check_size(std::int64_t size) {
  if (size < 1) throw InputError(concat("cannot sample from a dataset of ", size, " rows; it needs at least 1"));
}

}  // namespace

/// The order of one epoch under group_by_length, made when it is first asked for.
struct Sampler::Groups {
  std::vector<std::int32_t> lengths;
  std::int64_t megabatch = 1;  // rows

  std::mutex mutex;
  std::int64_t epoch = -1;
  std::vector<std::int64_t> order;

  /// transformers' trainer_pt_utils.get_length_grouped_indices, on our permutation.
  void prepare(std::uint64_t key) {
    const std::size_t size = lengths.size();
    order.resize(size);
    for (std::size_t i = 0; i < size; ++i) order[i] = static_cast<std::int64_t>(permuted(i, size, key));
    const auto shorter = [&](std::int64_t a, std::int64_t b) {
      return lengths[static_cast<std::size_t>(a)] < lengths[static_cast<std::size_t>(b)];
    };
    const auto longer = [&](std::int64_t a, std::int64_t b) { return shorter(b, a); };
    std::size_t longest = 0;  // position of the longest row: the first of some megabatch
    for (std::size_t begin = 0; begin < size; begin += static_cast<std::size_t>(megabatch)) {
      const std::size_t end = std::min(size, begin + static_cast<std::size_t>(megabatch));
      std::stable_sort(order.begin() + static_cast<std::ptrdiff_t>(begin),
                       order.begin() + static_cast<std::ptrdiff_t>(end), longer);
      if (shorter(order[longest], order[begin])) longest = begin;
    }
    std::swap(order[0], order[longest]);
  }
};

Sampler::Sampler(SamplingStrategy strategy, std::int64_t dataset_size, std::uint64_t seed)
    : random_(strategy == SamplingStrategy::random), size_(dataset_size), seed_(seed) {
  if (strategy == SamplingStrategy::group_by_length)
    throw InputError("group_by_length needs the lengths of the rows: give the sampler the data");
  check_size(size_);
}

Sampler::Sampler(SamplingStrategy strategy, const Dataset& dataset, std::uint64_t seed, std::int64_t rows_per_step)
    : random_(strategy == SamplingStrategy::random), size_(dataset.size()), seed_(seed) {
  check_size(size_);
  if (dataset.streamed()) {
    if (strategy == SamplingStrategy::group_by_length)
      throw InputError("group_by_length sorts all rows by length: a stream (--streaming) does not know them");
    random_ = false;  // the stream has its own order
    return;
  }
  if (const Blend* blend = dataset.blend()) {
    if (strategy == SamplingStrategy::group_by_length)
      throw InputError("group_by_length sorts rows of all data together: it does not go with the weights of a blend");
    blend_ = std::make_shared<const Blend>(*blend);
  }
  if (strategy == SamplingStrategy::group_by_length) {
    TESSERA_CHECK(rows_per_step >= 1, rows_per_step, " rows per step");
    groups_ = std::make_shared<Groups>();
    for (std::int64_t row = 0; row < size_; ++row)
      groups_->lengths.push_back(static_cast<std::int32_t>(dataset.length(row)));
    const std::int64_t steps = std::clamp<std::int64_t>(size_ / (rows_per_step * 4), 1, 50);
    groups_->megabatch = steps * rows_per_step;
  }
}

std::int64_t Sampler::operator()(std::int64_t i) const {
  TESSERA_CHECK(i >= 0, "sample ", i);
  if (blend_) {
    const Blend::Place place = (*blend_)(i);
    const std::int64_t epoch = place.number / place.size, position = place.number % place.size;
    if (!random_) return place.begin + position;
    const std::uint64_t key = epoch_key(mix(seed_) ^ static_cast<std::uint64_t>(place.part), epoch);
    return place.begin + static_cast<std::int64_t>(permuted(static_cast<std::uint64_t>(position),
                                                            static_cast<std::uint64_t>(place.size), key));
  }
  const std::int64_t epoch = i / size_, position = i % size_;
  if (groups_) {
    const std::scoped_lock lock(groups_->mutex);
    if (groups_->epoch != epoch) {
      groups_->prepare(epoch_key(seed_, epoch));
      groups_->epoch = epoch;
    }
    return groups_->order[static_cast<std::size_t>(position)];
  }
  if (!random_) return position;
  return static_cast<std::int64_t>(
      permuted(static_cast<std::uint64_t>(position), static_cast<std::uint64_t>(size_), epoch_key(seed_, epoch)));
}

}  // namespace tessera::data
