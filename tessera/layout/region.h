#pragma once
/// \file
/// Parts of tensors, however they were divided: a box of a tensor (what a tensor-parallel rank holds) and, of that
/// box's elements in row-major order, a range (what a data-parallel rank holds of it). A whole tensor is the box of its
/// shape with all its elements. Saving writes regions, loading reads regions; what two of them share is found here,
/// whatever cut them. Pure arithmetic.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tessera::layout {

/// Elements [begin, end) of the row-major flattening of the box that starts at `offset` and has `shape`, inside a
/// tensor. Sizes and indices in elements.
struct Region {
  std::vector<std::int64_t> offset;                   ///< first corner of the box, one per dimension; {} for a scalar
  std::vector<std::int64_t> shape;                    ///< shape of the box
  std::int64_t begin = 0, end = 0;                    ///< 0 <= begin <= end <= product of shape
  std::int64_t numel() const { return end - begin; }  ///< elements of the region, not of its box
  bool operator==(const Region&) const = default;
};

/// All of a tensor; elements [begin, end) of a flattened tensor.
Region whole_region(const std::vector<std::int64_t>& tensor_shape);
Region flat_region(const std::vector<std::int64_t>& tensor_shape, std::int64_t begin, std::int64_t end);

/// Throws InputError (rule and numbers; `what` begins the message) unless the region lies inside a tensor of this
/// shape. Products that leave int64 are refused before anything is computed with them.
void check_region(const Region& region, const std::vector<std::int64_t>& tensor_shape, const std::string& what);

/// `count` elements that follow one another in both regions: from `from` elements after the first region's begin, and
/// `to` elements after the second's.
struct CommonRun {
  std::int64_t from, to, count;  ///< in elements
  bool operator==(const CommonRun&) const = default;
};

/// Calls visit for what two regions of the same tensor (of `tensor_shape`; both checked) share, in runs as long as they
/// can be, in ascending order of `from`. Two flat ranges give one run at most; boxes that are cut across rows give a
/// run per row.
void for_each_common_run(const std::vector<std::int64_t>& tensor_shape, const Region& first, const Region& second,
                         const std::function<void(const CommonRun&)>& visit);

/// Whether two regions of the same tensor share an element: the work does not grow with what they share.
bool have_common_elements(const std::vector<std::int64_t>& tensor_shape, const Region& first, const Region& second);

}  // namespace tessera::layout
