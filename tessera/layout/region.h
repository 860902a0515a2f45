#pragma once
/// \file
/// Parts of tensors, independent of how they were divided: a box of a tensor (a tensor-parallel rank's part) and a
/// range of that box's elements in row-major order (a data-parallel rank's part of it). A whole tensor is the box of
/// its shape with all its elements. Saving writes regions and loading reads regions; this header finds the elements
/// that two regions share, whatever the layouts. Pure arithmetic.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tessera::layout {

/// Elements [begin, end) of the row-major flattening of the box that starts at `offset` in a tensor and has `shape`.
/// Sizes and indices in elements.
struct Region {
  std::vector<std::int64_t> offset;                   ///< first corner of the box, one per dimension; {} for a scalar
  std::vector<std::int64_t> shape;                    ///< shape of the box
  std::int64_t begin = 0, end = 0;                    ///< 0 <= begin <= end <= product of shape
  std::int64_t numel() const { return end - begin; }  ///< elements of the region, not of its box
  bool operator==(const Region&) const = default;
};

/// A whole tensor; elements [begin, end) of a flattened tensor.
Region whole_region(const std::vector<std::int64_t>& tensor_shape);
Region flat_region(const std::vector<std::int64_t>& tensor_shape, std::int64_t begin, std::int64_t end);

/// Throws InputError (rule and numbers, prefixed with `what`) unless the region is inside a tensor of this shape.
/// Products that overflow int64 are rejected before use.
void check_region(const Region& region, const std::vector<std::int64_t>& tensor_shape, const std::string& what);

/// `count` elements that are consecutive in both regions: starting `from` elements after the first region's begin, and
/// `to` elements after the second's.
struct CommonRun {
  std::int64_t from, to, count;  ///< in elements
  bool operator==(const CommonRun&) const = default;
};

/// Calls visit for the elements that two regions of the same tensor (of `tensor_shape`; both checked) share, in runs of
/// maximal length, in ascending order of `from`. Two flat ranges share at most one run; boxes that cut across rows
/// share a run per row.
void for_each_common_run(const std::vector<std::int64_t>& tensor_shape, const Region& first, const Region& second,
                         const std::function<void(const CommonRun&)>& visit);

/// Whether two regions of the same tensor share an element. The cost does not grow with the number of shared elements.
bool have_common_elements(const std::vector<std::int64_t>& tensor_shape, const Region& first, const Region& second);

}  // namespace tessera::layout
