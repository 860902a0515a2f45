#include <tessera/layout/batch/shares.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include <tessera/base/error.h>

namespace tessera::layout {
namespace {

double seconds_of(const RankSpeed& speed, std::int64_t rows) {
  return speed.fixed_seconds + static_cast<double>(rows) * speed.seconds_per_row;
}

/// Number of rows that finish by time `level`, within the bounds.
std::int64_t rows_by(const RankSpeed& speed, double level, std::int64_t least, std::int64_t rows) {
  const double fits = std::floor((level - speed.fixed_seconds) / speed.seconds_per_row);
  const auto most = std::min(speed.most, rows);
  return std::clamp(fits >= static_cast<double>(most) ? most : static_cast<std::int64_t>(std::max(0.0, fits)),
                    std::min(least, most), most);
}

void check(const std::vector<RankSpeed>& speeds, std::int64_t rows, std::int64_t least) {
  if (speeds.empty()) throw InputError("shares of a batch: no ranks");
  std::int64_t room = 0;
  for (std::size_t r = 0; r < speeds.size(); ++r) {
    const RankSpeed& speed = speeds[r];
    if (!(speed.seconds_per_row > 0) || !std::isfinite(speed.seconds_per_row) || !(speed.fixed_seconds >= 0) ||
        !std::isfinite(speed.fixed_seconds))
      throw InputError(concat("shares of a batch: rank ", r, " takes ", speed.fixed_seconds, " + n x ",
                              speed.seconds_per_row,
                              " seconds for n rows; both must be finite, and more rows must "
                              "take longer"));
    if (speed.most < least)
      throw InputError(
          concat("shares of a batch: rank ", r, " has memory for ", speed.most, " rows but needs at least ", least));
    room += std::min(speed.most, rows);
  }
  const auto ranks = static_cast<std::int64_t>(speeds.size());
  if (least < 0 || rows < least * ranks || room < rows)
    throw InputError(concat("shares of a batch: ", rows, " rows for ", ranks, " ranks of at least ", least,
                            " rows each, with memory for ", room, " together"));
}

}  // namespace

double slowest_seconds(const std::vector<RankSpeed>& speeds, const std::vector<std::int64_t>& shares) {
  double slowest = 0;
  for (std::size_t r = 0; r < speeds.size(); ++r) slowest = std::max(slowest, seconds_of(speeds[r], shares[r]));
  return slowest;
}

std::vector<std::int64_t> batch_shares(const std::vector<RankSpeed>& speeds, std::int64_t rows, std::int64_t least) {
  check(speeds, rows, least);
  const auto filled_to = [&](double level) {
    std::int64_t sum = 0;
    for (const RankSpeed& speed : speeds) sum += rows_by(speed, level, least, rows);
    return sum;
  };
  // The level is between 0, where all ranks have their minimum, and the time of the slowest rank with all rows.
  double low = 0, high = 0;
  for (const RankSpeed& speed : speeds) high = std::max(high, seconds_of(speed, rows));
  for (int i = 0; i < 100 && low < high; ++i) {
    const double middle = low + (high - low) / 2;
    (filled_to(middle) <= rows ? low : high) = middle;
  }
  if (filled_to(low) > rows) low = 0;
  std::vector<std::int64_t> shares;
  for (const RankSpeed& speed : speeds) shares.push_back(rows_by(speed, low, least, rows));

  using Next = std::pair<double, std::size_t>;  // finish time of a rank with one more row
  std::priority_queue<Next, std::vector<Next>, std::greater<>> next;
  const auto offer = [&](std::size_t r) {
    if (shares[r] < speeds[r].most) next.emplace(seconds_of(speeds[r], shares[r] + 1), r);
  };
  for (std::size_t r = 0; r < speeds.size(); ++r) offer(r);
  for (std::int64_t left = rows - std::accumulate(shares.begin(), shares.end(), std::int64_t{0}); left > 0; --left) {
    const std::size_t r = next.top().second;
    next.pop();
    ++shares[r];
    offer(r);
  }
  return shares;
}

std::vector<std::int64_t> equal_shares(std::int64_t rows, std::int64_t ranks) {
  std::vector<std::int64_t> shares(static_cast<std::size_t>(ranks), rows / ranks);
  for (std::int64_t r = 0; r < rows % ranks; ++r) ++shares[static_cast<std::size_t>(r)];
  return shares;
}

RowRange rows_of_micro_batch(const std::vector<std::int64_t>& shares, std::int64_t micro_batches, std::int64_t micro,
                             std::int64_t rank) {
  RowRange range;
  for (std::size_t r = 0; r < shares.size(); ++r) {
    const std::int64_t before = shares[r] * micro / micro_batches, after = shares[r] * (micro + 1) / micro_batches;
    range.begin += before;
    if (static_cast<std::int64_t>(r) < rank) range.begin += after - before;
    if (static_cast<std::int64_t>(r) == rank) range.count = after - before;
  }
  return range;
}

}  // namespace tessera::layout
