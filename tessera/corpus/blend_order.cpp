#include <tessera/corpus/blend_order.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <queue>
#include <utility>

#include <tessera/base/error.h>

namespace tessera::corpus {
namespace {

/// Divides the period into shares by the largest-remainder method, each at least 1.
std::vector<std::int64_t> shares_of(std::span<const double> weights, std::int64_t period) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<std::int64_t> shares;
  std::vector<std::pair<double, std::size_t>> rests;
  for (std::size_t p = 0; p < weights.size(); ++p) {
    const double exact = weights[p] / sum * static_cast<double>(period);
    shares.push_back(std::max<std::int64_t>(static_cast<std::int64_t>(exact), 1));
    rests.emplace_back(static_cast<double>(shares.back()) - exact, p);  // most negative: lost the most by rounding
  }
  std::sort(rests.begin(), rests.end());
  std::int64_t left = period - std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
  for (std::size_t i = 0; left > 0; ++i, --left) ++shares[rests[i % rests.size()].second];
  while (left < 0) {  // when many parts are due less than one sample each, reduce the largest
    --*std::max_element(shares.begin(), shares.end());
    ++left;
  }
  return shares;
}

}  // namespace

BlendOrder::BlendOrder(std::span<const double> weights) {
  if (weights.empty() || static_cast<std::int64_t>(weights.size()) > period)
    throw InputError(concat("a blend of ", weights.size(), " parts; it must have 1 to ", period));
  for (const double weight : weights)
    if (!(weight > 0) || !std::isfinite(weight))
      throw InputError(concat("a blend with the weight ", weight, "; weights must be above 0"));
  share_ = shares_of(weights, period);

  // The period is divided into equal intervals per sample of a part, and each sample is due in the middle of its
  // interval; samples are ordered by due time. (Megatron-LM instead takes the part that lags most, and examines all
  // parts for each sample.)
  const auto due = [&](std::size_t p, std::int64_t taken) {
    return (static_cast<double>(taken) + 0.5) * static_cast<double>(period) / static_cast<double>(share_[p]);
  };
  using Next = std::pair<double, std::size_t>;
  std::priority_queue<Next, std::vector<Next>, std::greater<>> queue;
  std::vector<std::int64_t> taken(share_.size(), 0);
  for (std::size_t p = 0; p < share_.size(); ++p) queue.emplace(due(p, 0), p);
  while (!queue.empty()) {
    const std::size_t p = queue.top().second;
    queue.pop();
    part_.push_back(static_cast<std::uint16_t>(p));
    number_.push_back(static_cast<std::uint16_t>(taken[p]++));
    if (taken[p] < share_[p]) queue.emplace(due(p, taken[p]), p);
  }
}

BlendOrder::Sample BlendOrder::operator()(std::int64_t i) const {
  TESSERA_CHECK(i >= 0, "sample ", i);
  const auto at = static_cast<std::size_t>(i % period);
  const std::int64_t part = part_[at];
  return {part, i / period * share_[static_cast<std::size_t>(part)] + number_[at]};
}

std::int64_t BlendOrder::samples_for(std::int64_t part, std::int64_t count) const {
  TESSERA_CHECK(part >= 0 && part < parts() && count >= 0, count, " samples of part ", part);
  if (count == 0) return 0;
  const std::int64_t share = share_[static_cast<std::size_t>(part)];
  const std::int64_t rounds = (count - 1) / share, number = (count - 1) % share;
  for (std::size_t at = 0; at < part_.size(); ++at)
    if (part_[at] == part && number_[at] == number) return rounds * period + static_cast<std::int64_t>(at) + 1;
  TESSERA_CHECK(false, "part ", part, " has no sample ", number, " in a period");
}

std::int64_t BlendOrder::count(std::int64_t part, std::int64_t samples) const {
  TESSERA_CHECK(part >= 0 && part < parts() && samples >= 0, "part ", part, " among ", samples, " samples");
  const auto end = part_.begin() + static_cast<std::ptrdiff_t>(samples % period);
  return samples / period * share_[static_cast<std::size_t>(part)] + std::count(part_.begin(), end, part);
}

}  // namespace tessera::corpus
