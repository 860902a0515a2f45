#include <tessera/xla/lowering/lowering.h>

#include <tessera/base/error.h>

namespace tessera::xla {
namespace {

using hlo::Value;

Value bits(NodeLowering& n, std::uint32_t value, const Value& like) {
  return hlo::constant(n.f, static_cast<double>(static_cast<std::int32_t>(value)), like.type);
}
/// kernels::mixed_bits() on int32, whose products and sums wrap like unsigned ones.
Value mixed(NodeLowering& n, Value x) {
  const auto shifted = [&](int by) {
    return hlo::binary(n.f, "xor", x,
                       hlo::binary(n.f, "shift_right_logical", x, bits(n, static_cast<std::uint32_t>(by), x)));
  };
  x = hlo::binary(n.f, "multiply", shifted(16), bits(n, 0x7feb352du, x));
  x = hlo::binary(n.f, "multiply", shifted(15), bits(n, 0x846ca68bu, x));
  return shifted(16);
}

/// kept(low keys, high keys, first column, limit): kernels::random_number() for every line and column; 1 where it is at
/// least the limit.
void kept(NodeLowering& n) {
  const hlo::Type type{n.result_type().sizes, Element::int32};
  hlo::Sizes places;
  for (std::size_t d = 0; d + 1 < type.sizes.size(); ++d) places.push_back(static_cast<std::int64_t>(d));
  const Value low = hlo::broadcast(n.f, n.tensor(0), places, type.sizes);
  const Value high = hlo::broadcast(n.f, n.tensor(1), places, type.sizes);
  Value column = hlo::iota(n.f, static_cast<std::int64_t>(places.size()), type);
  column = hlo::binary(n.f, "add", column, bits(n, static_cast<std::uint32_t>(n.integer(2)), column));
  const Value number = mixed(n, hlo::binary(n.f, "add", mixed(n, hlo::binary(n.f, "xor", column, low)), high));
  // Flipping the sign bits makes the signed comparison an unsigned one.
  constexpr std::uint32_t sign = 0x80000000u;
  const Value limit = bits(n, static_cast<std::uint32_t>(n.integer(3)) ^ sign, number);
  const Value is_kept = hlo::compare(n.f, "GE", hlo::binary(n.f, "xor", number, bits(n, sign, number)), limit);
  n.set(0, hlo::convert(n.f, is_kept, Element::float32));
}

}  // namespace

const RuleTable& random_rules() {
  static const RuleTable table = {{"kept", &kept}};
  return table;
}

}  // namespace tessera::xla
