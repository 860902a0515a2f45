#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/layout/region.h>

#include <algorithm>

namespace tessera::layout {
namespace {

std::string list(const std::vector<std::int64_t>& numbers) {
  std::vector<std::string> texts;
  for (const std::int64_t number : numbers) texts.push_back(std::to_string(number));
  return "[" + join(texts) + "]";
}

/// The number of elements. A zero-sized dimension does not hide an overflow of the other dimensions, because strides
/// are products, too.
std::int64_t product_of(const std::vector<std::int64_t>& shape, const std::string& what) {
  std::int64_t product = 1;
  bool empty = false;
  for (const std::int64_t size : shape) {
    if (size < 0) throw InputError(concat(what, ": shape ", list(shape), " has a negative size"));
    empty = empty || size == 0;
    if (size != 0 && __builtin_mul_overflow(product, size, &product))
      throw InputError(concat(what, ": the number of elements of shape ", list(shape), " does not fit into 64 bits"));
  }
  return empty ? 0 : product;
}

/// The intersection of two boxes, as rows: `length` elements that are consecutive in both boxes. Row 0 is the first in
/// row-major order, and both positions ascend from row to row.
struct Rows {
  struct Dim {
    std::int64_t size;                         ///< extent of the common box
    std::int64_t first_stride, second_stride;  ///< strides in the flattened boxes
  };
  std::vector<Dim> outer;  ///< outermost first; only dimensions with an extent above 1
  std::int64_t count = 1, length = 1;
  std::int64_t first_begin = 0, second_begin = 0;  ///< start of row 0 in the flattened boxes

  /// Start of row `index` in the two flattened boxes.
  std::pair<std::int64_t, std::int64_t> at(std::int64_t index) const {
    std::int64_t first = first_begin, second = second_begin;
    for (auto dim = outer.rbegin(); dim != outer.rend(); ++dim) {
      const std::int64_t step = index % dim->size;
      index /= dim->size;
      first += step * dim->first_stride;
      second += step * dim->second_stride;
    }
    return {first, second};
  }
};

/// Goes from the innermost dimension outwards. While both boxes have the same extent, a row continues into the next
/// dimension; the first dimension in which they differ ends it. Rows have maximal length because the boxes cannot both
/// be covered completely in that dimension.
Rows rows_of(const Region& first, const Region& second) {
  Rows rows;
  bool inside = true;  // all dimensions so far are the same in both
  std::int64_t first_stride = 1, second_stride = 1;
  for (std::size_t d = first.shape.size(); d-- > 0;) {
    const std::int64_t begin = std::max(first.offset[d], second.offset[d]);
    const std::int64_t end = std::min(first.offset[d] + first.shape[d], second.offset[d] + second.shape[d]);
    const std::int64_t size = std::max<std::int64_t>(end - begin, 0);
    if (size == 0) {
      rows.count = 0;
      return rows;
    }
    rows.first_begin += (begin - first.offset[d]) * first_stride;
    rows.second_begin += (begin - second.offset[d]) * second_stride;
    if (inside) {
      rows.length *= size;
    } else if (size > 1) {
      rows.count *= size;
      rows.outer.push_back({size, first_stride, second_stride});
    }
    inside = inside && first.offset[d] == second.offset[d] && first.shape[d] == second.shape[d];
    first_stride *= first.shape[d];
    second_stride *= second.shape[d];
  }
  std::reverse(rows.outer.begin(), rows.outer.end());
  return rows;
}

/// Calls visit for the common runs, in ascending order, as long as it returns true.
template <class Visit>
void walk(const std::vector<std::int64_t>& tensor_shape, const Region& first, const Region& second,
          const Visit& visit) {
  for (const Region* region : {&first, &second})
    TESSERA_CHECK(region->offset.size() == tensor_shape.size() && region->shape.size() == tensor_shape.size(),
                  "a region of ", region->shape.size(), " dimensions in a tensor of ", tensor_shape.size());
  if (first.begin >= first.end || second.begin >= second.end) return;
  const Rows rows = rows_of(first, second);

  // Both positions ascend with the row, so the rows that intersect both ranges are consecutive: find the first, stop
  // after the last.
  std::int64_t row = 0;
  for (std::int64_t beyond = rows.count; row < beyond;) {
    const std::int64_t middle = row + (beyond - row) / 2;
    const auto [in_first, in_second] = rows.at(middle);
    if (in_first + rows.length > first.begin && in_second + rows.length > second.begin)
      beyond = middle;
    else
      row = middle + 1;
  }
  for (; row < rows.count; ++row) {
    const auto [in_first, in_second] = rows.at(row);
    const std::int64_t from = std::max({std::int64_t{0}, first.begin - in_first, second.begin - in_second});
    const std::int64_t to = std::min({rows.length, first.end - in_first, second.end - in_second});
    if (in_first >= first.end || in_second >= second.end) return;
    if (from < to && !visit(CommonRun{in_first + from - first.begin, in_second + from - second.begin, to - from}))
      return;
  }
}

}  // namespace

Region whole_region(const std::vector<std::int64_t>& tensor_shape) {
  return {std::vector<std::int64_t>(tensor_shape.size(), 0), tensor_shape, 0, product_of(tensor_shape, "a tensor")};
}

Region flat_region(const std::vector<std::int64_t>& tensor_shape, std::int64_t begin, std::int64_t end) {
  Region region{std::vector<std::int64_t>(tensor_shape.size(), 0), tensor_shape, begin, end};
  check_region(region, tensor_shape, "a range of a tensor");
  return region;
}

void check_region(const Region& region, const std::vector<std::int64_t>& tensor_shape, const std::string& what) {
  product_of(tensor_shape, what);
  if (region.offset.size() != tensor_shape.size() || region.shape.size() != tensor_shape.size())
    throw InputError(concat(what, ": the box at ", list(region.offset), " of shape ", list(region.shape), " needs the ",
                            tensor_shape.size(), " dimensions of the tensor of shape ", list(tensor_shape)));
  for (std::size_t d = 0; d < tensor_shape.size(); ++d)
    if (region.offset[d] < 0 || region.shape[d] < 0 || region.offset[d] > tensor_shape[d] ||
        region.shape[d] > tensor_shape[d] - region.offset[d])
      throw InputError(concat(what, ": the box at ", list(region.offset), " of shape ", list(region.shape),
                              " leaves the tensor of shape ", list(tensor_shape), " in dimension ", d));
  const std::int64_t numel = product_of(region.shape, what);  // does not overflow: every dimension is at most the
                                                              // tensor's
  if (region.begin < 0 || region.begin > region.end || region.end > numel)
    throw InputError(concat(what, ": elements [", region.begin, ", ", region.end, ") are not a range of the ", numel,
                            " elements of the box of shape ", list(region.shape)));
}

void for_each_common_run(const std::vector<std::int64_t>& tensor_shape, const Region& first, const Region& second,
                         const std::function<void(const CommonRun&)>& visit) {
  walk(tensor_shape, first, second, [&](const CommonRun& run) {
    visit(run);
    return true;
  });
}

bool have_common_elements(const std::vector<std::int64_t>& tensor_shape, const Region& first, const Region& second) {
  bool found = false;  // only the first row that intersects both ranges can be empty
  walk(tensor_shape, first, second, [&](const CommonRun&) {
    found = true;
    return false;
  });
  return found;
}

}  // namespace tessera::layout
