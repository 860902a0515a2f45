// Computes the order of a run's samples from (seed, epoch).

#include <algorithm>
#include <limits>
#include <mutex>
#include <utility>
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

bool is_grouped(SamplingStrategy strategy) {
  return strategy == SamplingStrategy::group_by_length || strategy == SamplingStrategy::group_by_modality_length;
}

void check_size(std::int64_t size) {
  if (size < 1) throw InputError(concat("cannot sample from a dataset of ", size, " rows; it needs at least 1"));
}

}  // namespace

/// The order of one epoch under group_by_length or group_by_modality_length, computed on first use.
struct Sampler::Groups {
  std::vector<std::int32_t> lengths;
  std::int64_t megabatch = 1;  // rows
  bool by_modality = false;
  std::vector<bool> images;  // by_modality: whether a row has images
  std::int64_t batches = 1;  // by_modality: micro-batches per megabatch, which is a step

  std::mutex mutex;
  std::int64_t epoch = -1;
  std::vector<std::int64_t> order;

  /// transformers' trainer_pt_utils.get_length_grouped_indices, applied to our permutation.
  void prepare(std::uint64_t key) {
    if (by_modality) return prepare_by_modality(key);
    const std::size_t size = lengths.size();
    order.resize(size);
    for (std::size_t i = 0; i < size; ++i) order[i] = static_cast<std::int64_t>(permuted(i, size, key));
    const auto shorter = [&](std::int64_t a, std::int64_t b) {
      return lengths[static_cast<std::size_t>(a)] < lengths[static_cast<std::size_t>(b)];
    };
    const auto longer = [&](std::int64_t a, std::int64_t b) { return shorter(b, a); };
    std::size_t longest = 0;  // position of the longest row, which is the first row of some megabatch
    for (std::size_t begin = 0; begin < size; begin += static_cast<std::size_t>(megabatch)) {
      const std::size_t end = std::min(size, begin + static_cast<std::size_t>(megabatch));
      std::stable_sort(order.begin() + static_cast<std::ptrdiff_t>(begin),
                       order.begin() + static_cast<std::ptrdiff_t>(end), longer);
      if (shorter(order[longest], order[begin])) longest = begin;
    }
    std::swap(order[0], order[longest]);
  }

  /// LLaVA's split_to_even_chunks, flattened: each row, longest first, goes to the micro-batch with the fewest tokens
  /// that is not full.
  void deal(const std::vector<std::int64_t>& rows, std::vector<std::int64_t>& out) const {
    const auto count = static_cast<std::size_t>(batches);
    std::vector<std::vector<std::int64_t>> chunks(count);
    if (rows.size() % count != 0) {
      for (std::size_t i = 0; i < rows.size(); ++i) chunks[i % count].push_back(rows[i]);
    } else {
      std::vector<std::int64_t> sums(count, 0);
      for (const std::int64_t row : rows) {
        const auto least = static_cast<std::size_t>(std::min_element(sums.begin(), sums.end()) - sums.begin());
        chunks[least].push_back(row);
        sums[least] += lengths[static_cast<std::size_t>(row)];
        if (chunks[least].size() == rows.size() / count) sums[least] = std::numeric_limits<std::int64_t>::max();
      }
    }
    for (const auto& chunk : chunks) out.insert(out.end(), chunk.begin(), chunk.end());
  }

  /// LLaVA's get_length_grouped_indices (llava/train/llava_trainer.py): steps of rows in a random order.
  std::vector<std::vector<std::int64_t>> steps_of(const std::vector<std::int64_t>& rows, std::uint64_t key) const {
    const auto longer = [&](std::int64_t a, std::int64_t b) {
      return lengths[static_cast<std::size_t>(a)] > lengths[static_cast<std::size_t>(b)];
    };
    std::vector<std::vector<std::int64_t>> steps;
    for (std::size_t begin = 0; begin < rows.size(); begin += static_cast<std::size_t>(megabatch)) {
      std::vector<std::int64_t> step;
      for (std::size_t i = begin; i < std::min(rows.size(), begin + static_cast<std::size_t>(megabatch)); ++i)
        step.push_back(rows[permuted(i, rows.size(), key)]);
      std::stable_sort(step.begin(), step.end(), longer);
      deal(step, steps.emplace_back());
    }
    return steps;
  }

  /// LLaVA's get_modality_length_grouped_indices. The last step of each kind, which may be incomplete, comes last.
  void prepare_by_modality(std::uint64_t key) {
    std::vector<std::int64_t> with, without;
    for (std::size_t row = 0; row < images.size(); ++row)
      (images[row] ? with : without).push_back(static_cast<std::int64_t>(row));
    order.clear();
    const auto put = [&](const std::vector<std::int64_t>& step) {
      order.insert(order.end(), step.begin(), step.end());
    };
    if (with.empty() || without.empty()) {
      for (const auto& step : steps_of(with.empty() ? without : with, key)) put(step);
      return;
    }
    auto steps = steps_of(with, mix(key + 1)), others = steps_of(without, mix(key + 2));
    std::vector<std::int64_t> rest = std::move(steps.back());
    rest.insert(rest.end(), others.back().begin(), others.back().end());
    steps.back() = std::move(others.front());
    if (others.size() == 1) {
      steps.pop_back();
    } else {
      steps.insert(steps.end(), others.begin() + 1, others.end() - 1);
    }
    for (std::size_t i = 0; i < steps.size(); ++i) put(steps[permuted(i, steps.size(), mix(key + 3))]);
    std::sort(rest.begin(), rest.end());
    put(rest);
  }
};

Sampler::Sampler(SamplingStrategy strategy, std::int64_t dataset_size, std::uint64_t seed)
    : random_(strategy == SamplingStrategy::random), size_(dataset_size), seed_(seed) {
  if (is_grouped(strategy))
    throw InputError("group_by_length needs the lengths of the rows: construct the sampler with the data");
  check_size(size_);
}

Sampler::Sampler(SamplingStrategy strategy, const Dataset& dataset, std::uint64_t seed, std::int64_t rows_per_step,
                 std::int64_t rows_per_batch)
    : random_(strategy == SamplingStrategy::random), size_(dataset.size()), seed_(seed) {
  check_size(size_);
  if (dataset.streamed()) {
    if (is_grouped(strategy))
      throw InputError(
          "group_by_length sorts all rows by length, which a stream (--streaming) does not know in advance");
    random_ = false;  // the stream determines the order
    return;
  }
  if (const Blend* blend = dataset.blend()) {
    if (is_grouped(strategy))
      throw InputError(
          "group_by_length sorts the rows of all data together, so it cannot be combined with a blend's weights");
    blend_ = std::make_shared<const Blend>(*blend);
  }
  if (is_grouped(strategy)) {
    TESSERA_CHECK(rows_per_step >= 1, rows_per_step, " rows per step");
    groups_ = std::make_shared<Groups>();
    groups_->by_modality = strategy == SamplingStrategy::group_by_modality_length;
    for (std::int64_t row = 0; row < size_; ++row) {
      groups_->lengths.push_back(static_cast<std::int32_t>(dataset.length(row)));
      if (groups_->by_modality) groups_->images.push_back(!dataset.read(row).images.empty());
    }
    if (groups_->by_modality) {
      groups_->megabatch = rows_per_step;
      groups_->batches = rows_per_batch > 0 ? rows_per_step / rows_per_batch : 1;
      return;
    }
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
