#pragma once
/// \file
/// The position of a region's element in the whole tensor, computed dimension by dimension: the slow reference for the
/// tests and fuzzers of layout/region.h and format/manifest/state_index.h.

#include <tessera/layout/region.h>

#include <cstdint>
#include <vector>

namespace tessera::testing {

/// Returns the index in the flattened tensor of element `place` (region.begin <= place < region.end) of the region's
/// flattened box.
inline std::int64_t element_of(const layout::Region& region, const std::vector<std::int64_t>& tensor_shape,
                               std::int64_t place) {
  std::int64_t left = place, at = 0, stride = 1;
  for (std::size_t d = tensor_shape.size(); d-- > 0;) {
    at += (region.offset[d] + left % region.shape[d]) * stride;
    left /= region.shape[d];
    stride *= tensor_shape[d];
  }
  return at;
}

}  // namespace tessera::testing
