#pragma once
/// \file
/// A series that never ends, of which a bounded number of lines is kept: enough to draw its curves, peaks included.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace tessera::train {

/// Steps fall into buckets of equal width, which doubles whenever a step would need more than `buckets` of them. Of
/// each bucket stay its first line, its last, and for each of `Peaks` numbers the first line in which that is largest.
/// What stays depends on the lines alone, and adding what has stayed (and what came later) to an empty sample gives the
/// same sample: a restart goes on as if nothing had happened. At most buckets * (2 + Peaks) lines stay; adding one
/// costs a few comparisons. Not thread-safe.
template <class Line, std::size_t Peaks>
class SeriesSample {
 public:
  using Numbers = std::array<double, Peaks>;  ///< what has peaks; a number that is not finite is a peak, too
  /// What add() was given.
  struct Kept {
    std::int64_t place;  ///< among the lines of all series
    std::int64_t step;   ///< never below that of an earlier line
    Numbers peaks;       ///< infinite where they were not finite
    Line line;           ///< what is kept
  };

  /// At least 1 bucket.
  explicit SeriesSample(std::int64_t buckets) : buckets_(std::max<std::int64_t>(1, buckets)) {}

  /// `place`: orders lines of several series. A step below an earlier one counts as that.
  void add(std::int64_t place, std::int64_t step, Numbers peaks, Line line) {
    step = std::max(step, kept_.empty() ? std::int64_t{0} : kept_.back().step);
    for (double& number : peaks)
      if (!std::isfinite(number)) number = std::numeric_limits<double>::infinity();
    if (step / width_ >= buckets_) {
      while (step / width_ >= buckets_) width_ *= 2;
      thin_out();
    }
    kept_.push_back({place, step, peaks, std::move(line)});
    auto begin = kept_.end() - 1;
    while (begin != kept_.begin() && bucket(*(begin - 1)) == bucket(kept_.back())) --begin;
    kept_.erase(thin_out(begin, kept_.end(), begin), kept_.end());
  }

  /// In the order in which they were added.
  const std::vector<Kept>& lines() const { return kept_; }
  std::int64_t width() const { return width_; }  ///< a bucket's, in steps

 private:
  using Place = typename std::vector<Kept>::iterator;

  std::int64_t bucket(const Kept& kept) const { return kept.step / width_; }

  void thin_out() {
    Place to = kept_.begin();
    for (Place begin = kept_.begin(); begin != kept_.end();) {
      Place end = begin + 1;
      while (end != kept_.end() && bucket(*end) == bucket(*begin)) ++end;
      to = thin_out(begin, end, to);
      begin = end;
    }
    kept_.erase(to, kept_.end());
  }

  /// Moves what stays of the bucket [begin, end) to `to`, and returns where that ends.
  static Place thin_out(Place begin, Place end, Place to) {
    std::array<Place, Peaks + 2> stay;
    stay[0] = begin;
    stay[1] = end - 1;
    for (std::size_t i = 0; i < Peaks; ++i)
      stay[i + 2] = std::max_element(begin, end, [i](const Kept& a, const Kept& b) { return a.peaks[i] < b.peaks[i]; });
    std::sort(stay.begin(), stay.end());
    const auto last = std::unique(stay.begin(), stay.end());
    for (auto one = stay.begin(); one != last; ++one, ++to)
      if (to != *one) *to = std::move(**one);
    return to;
  }

  std::int64_t buckets_, width_ = 1;
  std::vector<Kept> kept_;
};

}  // namespace tessera::train
