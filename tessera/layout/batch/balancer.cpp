#include <tessera/layout/batch/balancer.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <tessera/base/error.h>

namespace tessera::layout {
namespace {

double median(std::vector<double> values) {
  const std::size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(middle), values.end());
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle] + *std::max_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(middle))) / 2;
}

}  // namespace

BatchBalancer::BatchBalancer(std::int64_t ranks, std::vector<double> seconds_per_row, BalanceRules rules)
    : rules_(rules), adopted_(std::move(seconds_per_row)), history_(static_cast<std::size_t>(ranks)) {
  TESSERA_CHECK(ranks >= 1, ranks, " ranks share a batch");
  const auto known = [](double seconds) { return std::isfinite(seconds) && seconds > 0; };
  if (adopted_.size() != history_.size() || !std::all_of(adopted_.begin(), adopted_.end(), known))
    adopted_.assign(history_.size(), 1.0);
}

/// Memory always suffices for an equal share, which runs without balancing.
std::vector<RankSpeed> BatchBalancer::speeds_of(const std::vector<double>& seconds_per_row, std::int64_t rows) const {
  const auto ranks = static_cast<std::int64_t>(seconds_per_row.size());
  const std::int64_t equal = (rows + ranks - 1) / ranks;
  std::vector<RankSpeed> speeds;
  for (std::size_t r = 0; r < seconds_per_row.size(); ++r)
    speeds.push_back(
        {.seconds_per_row = seconds_per_row[r], .most = most_.empty() ? INT64_MAX : std::max(equal, most_[r])});
  return speeds;
}

std::vector<std::int64_t> BatchBalancer::shares(std::int64_t rows, std::int64_t least) const {
  const auto ranks = static_cast<std::int64_t>(adopted_.size());
  if (rows < least * ranks) return equal_shares(rows, ranks);
  return batch_shares(speeds_of(adopted_, rows), rows, least);
}

bool BatchBalancer::measured(const std::vector<std::int64_t>& shares, const std::vector<double>& seconds,
                             const std::vector<std::int64_t>& most, std::int64_t least) {
  TESSERA_CHECK(shares.size() == adopted_.size() && seconds.size() == adopted_.size() && most.size() == adopted_.size(),
                "a step measured on ", seconds.size(), " of ", adopted_.size(), " ranks");
  most_ = most;
  if (++steps_ <= rules_.ignored) return false;
  for (std::size_t r = 0; r < seconds.size(); ++r) {
    if (shares[r] < 1 || !(seconds[r] > 0)) return false;  // this step provides no usable measurement
    history_[r].push_back(seconds[r] / static_cast<double>(shares[r]));
    if (history_[r].size() > static_cast<std::size_t>(rules_.window)) history_[r].erase(history_[r].begin());
  }
  if (history_.front().size() < static_cast<std::size_t>(rules_.window)) return false;

  std::vector<double> speeds;
  for (const auto& history : history_) speeds.push_back(median(history));
  const std::int64_t rows = std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
  const std::vector<RankSpeed> now = speeds_of(speeds, rows);
  if (rows < least * static_cast<std::int64_t>(shares.size())) return false;
  const double before = slowest_seconds(now, shares), after = slowest_seconds(now, batch_shares(now, rows, least));
  promises_ = before - after > rules_.least_gain * before ? promises_ + 1 : 0;
  if (promises_ < rules_.settled) return false;
  adopted_ = speeds;
  for (auto& history : history_) history.clear();
  steps_ = promises_ = 0;
  ++changes_;
  return true;
}

}  // namespace tessera::layout
