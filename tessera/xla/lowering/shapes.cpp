#include <tessera/xla/lowering/lowering.h>

#include <tessera/base/error.h>

#include <algorithm>
#include <limits>

namespace tessera::xla {
namespace {

using hlo::Sizes;
using hlo::Value;

void reshaped(NodeLowering& n) { n.set(0, hlo::reshape(n.f, n.tensor(0), n.result_type().sizes)); }

/// expand() with sizes already resolved by LibTorch.
void expand(NodeLowering& n) { n.set(0, hlo::expand(n.f, n.tensor(0), n.result_type().sizes)); }

void transpose(NodeLowering& n) {
  const Value& x = n.tensor(0);
  const std::size_t rank = x.type.sizes.size();
  Sizes order(rank);
  for (std::size_t d = 0; d < rank; ++d) order[d] = static_cast<std::int64_t>(d);
  if (rank == 0) return n.set(0, x);
  std::swap(order.at(static_cast<std::size_t>(n.dimension(1, rank))),
            order.at(static_cast<std::size_t>(n.dimension(2, rank))));
  n.set(0, hlo::transpose(n.f, x, order));
}
/// The transpose of a matrix; a vector is returned unchanged.
void matrix_transpose(NodeLowering& n) {
  const Value& x = n.tensor(0);
  n.set(0, x.type.sizes.size() < 2 ? x : hlo::transpose(n.f, x, {1, 0}));
}
void permute(NodeLowering& n) {
  const Value& x = n.tensor(0);
  Sizes order = n.integers(1);
  for (std::int64_t& d : order)
    if (d < 0) d += static_cast<std::int64_t>(order.size());
  n.set(0, hlo::transpose(n.f, x, order));
}

/// begin or end of a slice, with LibTorch's rules: negative values count from the end, and the result is clamped to the
/// size.
std::int64_t bound(NodeLowering& n, std::size_t i, std::int64_t size, std::int64_t otherwise) {
  if (!n.has(i)) return otherwise;
  const std::int64_t given = n.integer(i);
  return std::clamp<std::int64_t>(given < 0 ? given + size : given, 0, size);
}
void slice(NodeLowering& n) {
  const Value& x = n.tensor(0);
  const std::int64_t d = n.dimension(1, x.type.sizes.size());
  const std::int64_t size = x.type.sizes.at(static_cast<std::size_t>(d));
  const std::int64_t begin = bound(n, 2, size, 0), end = std::max(begin, bound(n, 3, size, size));
  n.set(0, hlo::slice(n.f, x, d, begin, end, n.integer(4)));
}
/// slice_backward(dy, sizes, dim, begin, end, step): zeros around dy.
void slice_backward(NodeLowering& n) {
  const hlo::Type type = n.result_type();
  const std::int64_t d = n.dimension(2, type.sizes.size());
  const std::int64_t size = type.sizes.at(static_cast<std::size_t>(d));
  const auto at = [&](std::size_t i) {
    const std::int64_t given = n.integer(i);
    return std::clamp<std::int64_t>(given < 0 ? given + size : given, 0, size);
  };
  const std::int64_t begin = at(3), step = n.integer(5), rows = n.tensor(0).type.sizes[static_cast<std::size_t>(d)];
  const std::int64_t covered = rows == 0 ? 0 : (rows - 1) * step + 1;
  n.set(0, hlo::pad(n.f, n.tensor(0), 0, d, begin, size - begin - covered, step - 1));
}
void select(NodeLowering& n) {
  const Value& x = n.tensor(0);
  const std::int64_t d = n.dimension(1, x.type.sizes.size()), size = x.type.sizes.at(static_cast<std::size_t>(d));
  const std::int64_t index = n.integer(2) < 0 ? n.integer(2) + size : n.integer(2);
  n.set(0, hlo::reshape(n.f, hlo::slice(n.f, x, d, index, index + 1), n.result_type().sizes));
}
/// select_backward(dy, sizes, dim, index).
void select_backward(NodeLowering& n) {
  const hlo::Type type = n.result_type();
  const std::int64_t d = n.dimension(2, type.sizes.size()), size = type.sizes.at(static_cast<std::size_t>(d));
  const std::int64_t index = n.integer(3) < 0 ? n.integer(3) + size : n.integer(3);
  Sizes one = type.sizes;
  one[static_cast<std::size_t>(d)] = 1;
  n.set(0, hlo::pad(n.f, hlo::reshape(n.f, n.tensor(0), one), 0, d, index, size - index - 1));
}

/// Pieces along `d`, with the lengths of the captured results.
void pieces(NodeLowering& n, std::int64_t d, bool squeeze) {
  const Value& x = n.tensor(0);
  std::int64_t begin = 0;
  for (std::size_t k = 0; k < n.node().results.size(); ++k) {
    const hlo::Type type = n.result_type(k);
    const std::int64_t length = squeeze ? 1 : type.sizes.at(static_cast<std::size_t>(d));
    n.set(k, hlo::reshape(n.f, hlo::slice(n.f, x, d, begin, begin + length), type.sizes));
    begin += length;
  }
}
void split(NodeLowering& n) { pieces(n, n.dimension(2, n.tensor(0).type.sizes.size()), false); }
void unbind(NodeLowering& n) { pieces(n, n.dimension(1, n.tensor(0).type.sizes.size()), true); }

void flip(NodeLowering& n) {
  const Value& x = n.tensor(0);
  Sizes dimensions = n.integers(1);
  for (std::int64_t& d : dimensions)
    if (d < 0) d += static_cast<std::int64_t>(x.type.sizes.size());
  n.set(0, hlo::reverse(n.f, x, dimensions));
}
void cat(NodeLowering& n) {
  const hlo::Type type = n.result_type();
  std::vector<Value> values;
  for (const Value& value : n.tensors(0))  // LibTorch ignores empty vectors
    if (value.type.sizes != Sizes{0} || type.sizes.size() == 1)
      values.push_back(hlo::convert(n.f, value, type.element));
  n.set(0, hlo::concatenate(n.f, values, n.dimension(1, type.sizes.size())));
}
void stack(NodeLowering& n) {
  const hlo::Type type = n.result_type();
  const std::int64_t d = n.dimension(1, type.sizes.size());
  Sizes one = type.sizes;
  one.at(static_cast<std::size_t>(d)) = 1;
  std::vector<Value> values;
  for (const Value& value : n.tensors(0))
    values.push_back(hlo::reshape(n.f, hlo::convert(n.f, value, type.element), one));
  n.set(0, hlo::concatenate(n.f, values, d));
}
/// Pads from the last dimension backwards, with two numbers per dimension; negative numbers crop.
void constant_pad(NodeLowering& n) {
  Value x = n.tensor(0);
  const Sizes pads = n.integers(1);
  for (std::size_t i = 0; i + 1 < pads.size(); i += 2) {
    const auto d = static_cast<std::int64_t>(x.type.sizes.size() - 1 - i / 2);
    x = hlo::pad(n.f, x, n.number(2), d, pads[i], pads[i + 1]);
  }
  n.set(0, x);
}
/// The triangle of a matrix on one side of a diagonal.
void triangle(NodeLowering& n, std::string_view how) {
  const Value& x = n.tensor(0);
  const hlo::Type places{x.type.sizes, Element::int64};
  const auto rank = static_cast<std::int64_t>(places.sizes.size());
  const Value row = hlo::binary(n.f, "add", hlo::iota(n.f, rank - 2, places),
                                hlo::constant(n.f, static_cast<double>(n.integer(1)), places));
  const Value kept = hlo::compare(n.f, how, hlo::iota(n.f, rank - 1, places), row);
  n.set(0, hlo::select(n.f, kept, x, hlo::constant(n.f, 0, x.type)));
}

}  // namespace

const RuleTable& shape_rules() {
  static const RuleTable table = {
      {"view", &reshaped},
      {"_unsafe_view", &reshaped},
      {"_reshape_alias", &reshaped},
      {"squeeze", &reshaped},
      {"unsqueeze", &reshaped},
      {"expand", &expand},
      {"t", &matrix_transpose},
      {"transpose", &transpose},
      {"permute", &permute},
      {"slice", &slice},
      {"slice_backward", &slice_backward},
      {"select", &select},
      {"select_backward", &select_backward},
      {"split", &split},
      {"split_with_sizes", &split},
      {"unbind", &unbind},
      {"flip", &flip},
      {"cat", &cat},
      {"stack", &stack},
      {"constant_pad_nd", &constant_pad},
      {"triu", [](NodeLowering& n) { triangle(n, "GE"); }},
      {"tril", [](NodeLowering& n) { triangle(n, "LE"); }},
  };
  return table;
}

}  // namespace tessera::xla
