#pragma once
/// \file
/// A bounded sample of an endless series of lines: enough to draw its curves, including peaks.

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

/// Steps are assigned to buckets of equal width, which doubles whenever a step would need more than `buckets` of them.
/// Each bucket keeps its first line, its last, and for each of `Peaks` numbers the first line in which it is largest.
/// The result depends only on the lines, and adding the kept lines (and later ones) to an empty sample gives the same
/// sample, so a restart continues seamlessly. At most buckets * (2 + Peaks) lines are kept.
///
/// Every add() costs about the same, because a step of the training waits for it: buckets merged by a doubling are
/// thinned out two at a time by the following lines, and until then by callers of lines(). Not thread-safe, not
/// copyable.
template <class Line, std::size_t Peaks>
class SeriesSample {
 public:
  using Numbers = std::array<double, Peaks>;  ///< values whose peaks are kept; non-finite ones count as peaks
  /// An entry, as passed to add().
  struct Kept {
    std::int64_t place;  ///< position among the lines of all series
    std::int64_t step;   ///< never less than that of an earlier line
    Numbers peaks;       ///< non-finite values are stored as infinity
    Line line;           ///< the payload
  };

  /// At least 1 bucket.
  explicit SeriesSample(std::int64_t buckets) : buckets_(std::max<std::int64_t>(1, buckets)) {}

  /// `place`: orders the lines of several series. A step that is lower than an earlier one is raised to the earlier
  /// one.
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

  /// In insertion order; valid until the next add().
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
  std::int64_t width() const { return width_; }  ///< steps per bucket

 private:
  using Place = typename std::pmr::list<Kept>::iterator;

  std::int64_t bucket(const Kept& kept) const { return kept.step / width_; }

  template <class Place>
  Place end_of_bucket(Place begin) const {
    Place end = begin;
    while (end != kept_.end() && bucket(*end) == bucket(*begin)) ++end;
    return end;
  }

  /// Lines of the bucket [begin, end) to keep; may contain duplicates.
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
       .largest_required_pool_block = 1024}};  ///< keeps lines close together for faster traversal
  std::pmr::list<Kept> kept_{&pool_};
  Place untidy_ = kept_.end();  ///< first bucket merged by the last doubling and not thinned out yet
};

}  // namespace tessera::train
