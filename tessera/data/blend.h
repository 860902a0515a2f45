#pragma once
/// \file
/// Several datasets as one.

#include <tessera/config/sections/words.h>
#include <tessera/corpus/blend_order.h>
#include <tessera/data/dataset.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace tessera::data {

/// All rows of all parts, those of the first part first. One part: that itself.
std::shared_ptr<const Dataset> joined(std::vector<std::shared_ptr<const Dataset>> parts);

/// The same with weights: the order of its samples, of all epochs, is that of a Blend. An epoch ends when every part
/// has been seen whole (all_exhausted), or before a row of some part would come a second time (first_exhausted). Where
/// an epoch has more samples than there are rows, rows beyond the last are the first again, so that all of [0, size())
/// can be read.
std::shared_ptr<const Dataset> blended(std::vector<std::shared_ptr<const Dataset>> parts,
                                       const std::vector<double>& weights, BlendMode mode);

/// The order of a blend: sample i is row `number` of its part, repeating, in an order of the part's own.
class Blend {
 public:
  Blend(corpus::BlendOrder order, std::vector<std::int64_t> begins);

  struct Place {
    std::int64_t part = 0, begin = 0, size = 0;  ///< its rows are [begin, begin + size)
    std::int64_t number = 0;                     ///< how many samples of this part stand before
  };
  Place operator()(std::int64_t sample) const;
  std::int64_t rows() const { return begins_.back(); }

 private:
  corpus::BlendOrder order_;
  std::vector<std::int64_t> begins_;  // where each part begins, and the end
};

}  // namespace tessera::data
