#include <tessera/layout/flat.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <algorithm>

namespace tessera::layout {

namespace {

std::string describe(const Parameter& parameter) {
  std::vector<std::string> sizes;
  for (std::int64_t size : parameter.shape) sizes.push_back(std::to_string(size));
  return concat("parameter '", parameter.name, "' of shape [", join(sizes), "]");
}

/// `value` rounded up to a multiple of `unit`; `what` names the value in the message on overflow.
std::int64_t round_up(std::int64_t value, std::int64_t unit, const std::string& what) {
  std::int64_t raised = 0;
  if (__builtin_add_overflow(value, unit - 1, &raised)) {
    throw InputError(concat(what, ": ", value, " elements padded to a multiple of ", unit, " do not fit into 64 bits"));
  }
  return raised / unit * unit;
}

}  // namespace

std::int64_t Parameter::numel() const {
  bool empty = false;
  std::int64_t product = 1;
  bool overflow = false;
  for (std::int64_t size : shape) {
    if (size < 0) throw InputError(concat(describe(*this), ": a size is negative"));
    empty = empty || size == 0;
    overflow = overflow || __builtin_mul_overflow(product, size, &product);
  }
  if (empty) return 0;
  if (overflow) throw InputError(concat(describe(*this), ": the number of elements does not fit into 64 bits"));
  return product;
}

std::int64_t Parameter::bytes() const {
  if (element_size < 1) throw InputError(concat(describe(*this), ": element size ", element_size, " is below 1 byte"));
  std::int64_t result = 0;
  if (__builtin_mul_overflow(numel(), element_size, &result)) {
    throw InputError(concat(describe(*this), ": the number of bytes does not fit into 64 bits"));
  }
  return result;
}

FlatLayout make_flat_layout(std::span<const Parameter> parameters, std::span<const std::size_t> order, int world,
                            std::int64_t alignment) {
  TESSERA_CHECK(world >= 1, "a flat layout over ", world, " ranks");
  TESSERA_CHECK(alignment >= 1, "a flat layout aligned to ", alignment, " elements");
  FlatLayout layout;
  layout.world = world;
  layout.segments.reserve(order.size());
  std::vector<bool> placed(parameters.size(), false);
  std::int64_t end = 0;
  for (std::size_t index : order) {
    TESSERA_CHECK(index < parameters.size(), "index ", index, " among ", parameters.size(), " parameters");
    TESSERA_CHECK(!placed[index], describe(parameters[index]), " is listed twice");
    placed[index] = true;
    const std::string what = describe(parameters[index]);
    const std::int64_t offset = round_up(end, alignment, what);
    const std::int64_t numel = parameters[index].numel();
    if (__builtin_add_overflow(offset, numel, &end)) {
      throw InputError(concat(what, ": the flat buffer that holds it does not fit into 64 bits"));
    }
    layout.segments.push_back({index, offset, numel});
  }
  std::int64_t unit = 0;
  if (__builtin_mul_overflow(static_cast<std::int64_t>(world), alignment, &unit)) {
    throw InputError(
        concat("a flat layout of ", world, " ranks x alignment ", alignment, " does not fit into 64 bits"));
  }
  layout.padded = round_up(end, unit, concat("a flat buffer of ", order.size(), " parameters"));
  return layout;
}

Range shard_range(const FlatLayout& layout, int rank) {
  TESSERA_CHECK(rank >= 0 && rank < layout.world, "shard of rank ", rank, " in a layout over ", layout.world, " ranks");
  return {rank * layout.shard_numel(), (rank + 1) * layout.shard_numel()};
}

Range intersect(Range a, Range b) {
  const std::int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

}  // namespace tessera::layout
