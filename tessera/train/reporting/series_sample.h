#pragma once
/// \file
/// A series that never ends, of which a bounded number of lines is kept: enough to draw its curves, peaks included.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <list>
#include <memory_resource>
#include <utility>
#include <vector>

namespace tessera::train {

/// Steps fall into buckets of equal width, which doubles whenever a step would need more than `buckets` of them. Of
/// each bucket stay its first line, its last, and for each of `Peaks` numbers the first line in which that is largest.
/// What stays depends on the lines alone, and adding what has stayed (and what came later) to an empty sample gives the
/// same sample: a restart goes on as if nothing had happened. At most buckets * (2 + Peaks) lines stay.
///
/// Every add() costs about the same, since a step of the training waits for it: buckets that a doubling has united are
/// thinned out two at a time by the lines that follow, and until then by whoever asks for lines(). Not thread-safe, not
/// copyable.
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
      untidy_ = kept_.begin();
    }
    kept_.push_back({place, step, peaks, std::move(line)});
    auto begin = std::prev(kept_.end());
    while (begin != kept_.begin() && bucket(*std::prev(begin)) == bucket(kept_.back())) --begin;
    if (untidy_ != kept_.end() && bucket(*untidy_) == bucket(kept_.back())) untidy_ = kept_.end();
    thin_out(begin, kept_.end());
    for (int i = 0; i < 2 && untidy_ != kept_.end(); ++i) {
      begin = untidy_;
      untidy_ = end_of_bucket(begin);
      thin_out(begin, untidy_);
    }
  }

  /// In the order in which they were added; until the next add().
  std::vector<const Kept*> lines() const {
    std::vector<const Kept*> all;
    all.reserve(kept_.size());
    typename std::pmr::list<Kept>::const_iterator begin = kept_.begin();
    for (; begin != untidy_; ++begin) all.push_back(&*begin);
    while (begin != kept_.end()) {
      const auto end = end_of_bucket(begin);
      const auto stay = staying(begin, end);
      for (; begin != end; ++begin)
        if (std::find(stay.begin(), stay.end(), begin) != stay.end()) all.push_back(&*begin);
    }
    return all;
  }
  std::int64_t width() const { return width_; }  ///< a bucket's, in steps

 private:
  using Place = typename std::pmr::list<Kept>::iterator;

  std::int64_t bucket(const Kept& kept) const { return kept.step / width_; }

  template <class Place>
  Place end_of_bucket(Place begin) const {
    Place end = begin;
    while (end != kept_.end() && bucket(*end) == bucket(*begin)) ++end;
    return end;
  }

  /// Those of the bucket [begin, end) that stay; one may be there more than once.
  template <class Place>
  static std::array<Place, Peaks + 2> staying(Place begin, Place end) {
    std::array<Place, Peaks + 2> stay;
    stay[0] = begin;
    stay[1] = std::prev(end);
    for (std::size_t i = 0; i < Peaks; ++i)
      stay[i + 2] = std::max_element(begin, end, [i](const Kept& a, const Kept& b) { return a.peaks[i] < b.peaks[i]; });
    return stay;
  }

  void thin_out(Place begin, Place end) {
    const auto stay = staying(begin, end);
    while (begin != end)
      begin = std::find(stay.begin(), stay.end(), begin) != stay.end() ? std::next(begin) : kept_.erase(begin);
  }

  std::int64_t buckets_, width_ = 1;
  std::pmr::unsynchronized_pool_resource pool_{
      {.max_blocks_per_chunk = 64,
       .largest_required_pool_block = 1024}};  ///< lines close together, for who looks at all
  std::pmr::list<Kept> kept_{&pool_};
  Place untidy_ = kept_.end();  ///< where the first bucket begins that the last doubling has united
};

}  // namespace tessera::train
