#pragma once
/// \file
/// Combines several datasets into one.

#include <tessera/config/sections/words.h>
#include <tessera/corpus/blend_order.h>
#include <tessera/data/dataset.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace tessera::data {

/// Concatenates all rows of all parts, in order. A single part is returned unchanged.
std::shared_ptr<const Dataset> joined(std::vector<std::shared_ptr<const Dataset>> parts);

/// The same with weights: the order of samples, over all epochs, is that of a Blend. An epoch ends when every part has
/// been read completely (all_exhausted), or before a row of some part would be repeated (first_exhausted). If an epoch
/// has more samples than there are rows, row indices beyond the last wrap around to the first, so that all of [0,
/// size()) can be read.
std::shared_ptr<const Dataset> blended(std::vector<std::shared_ptr<const Dataset>> parts,
                                       const std::vector<double>& weights, BlendMode mode);

/// The order of a blend: maps sample i to row `number` of its part (mod the part's size), in an order that belongs to
/// the part.
class Blend {
 public:
  Blend(corpus::BlendOrder order, std::vector<std::int64_t> begins);

  struct Place {
    std::int64_t part = 0, begin = 0, size = 0;  ///< the part's rows are [begin, begin + size)
    std::int64_t number = 0;                     ///< number of earlier samples from this part
  };
  Place operator()(std::int64_t sample) const;
  std::int64_t rows() const { return begins_.back(); }

 private:
  corpus::BlendOrder order_;
  std::vector<std::int64_t> begins_;  // the first row of each part, and the total number of rows
};

}  // namespace tessera::data
