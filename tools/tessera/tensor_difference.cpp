#include <tools/tessera/tensor_difference.h>

#include <tessera/base/error.h>
#include <tessera/base/half.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace tessera::tool {
namespace {

using format::DType;

template <class T, class ToDouble>
TensorDifference compare(std::span<const std::byte> a, std::span<const std::byte> b, ToDouble to_double) {
  TensorDifference out;
  out.elements = a.size() / sizeof(T);
  for (std::uint64_t i = 0; i < out.elements; ++i) {
    T left, right;
    std::memcpy(&left, a.data() + i * sizeof(T), sizeof(T));
    std::memcpy(&right, b.data() + i * sizeof(T), sizeof(T));
    if (std::memcmp(&left, &right, sizeof(T)) == 0) continue;
    const double x = to_double(left), y = to_double(right);
    double gap = std::fabs(x - y);
    if (x == y || (std::isnan(x) && std::isnan(y)))
      gap = 0;  // infinities of the same sign, -0 and 0, nans with different bits
    else if (std::isnan(gap))
      gap = std::numeric_limits<double>::infinity();
    if (out.different++ == 0 || gap > out.largest) {
      out.largest = gap;
      out.where = i;
    }
    if (gap > 0) {
      const double scale = std::fmax(std::fabs(x), std::fabs(y));
      out.largest_relative = std::fmax(out.largest_relative, std::isfinite(scale) && scale > 0 ? gap / scale : 1);
    }
  }
  return out;
}

template <class T>
TensorDifference compare(std::span<const std::byte> a, std::span<const std::byte> b) {
  return compare<T>(a, b, [](T value) { return static_cast<double>(value); });
}

}  // namespace

TensorDifference difference(DType dtype, std::span<const std::byte> a, std::span<const std::byte> b) {
  TESSERA_CHECK(a.size() == b.size(), "difference of tensors with ", a.size(), " and ", b.size(), " bytes");
  switch (dtype) {
    case DType::f32:
      return compare<float>(a, b);
    case DType::f64:
      return compare<double>(a, b);
    case DType::f16:
      return compare<std::uint16_t>(a, b, [](std::uint16_t bits) -> double { return from_f16(bits); });
    case DType::bf16:
      return compare<std::uint16_t>(a, b, [](std::uint16_t bits) -> double { return from_bf16(bits); });
    case DType::i64:
      return compare<std::int64_t>(a, b);
    case DType::u64:
      return compare<std::uint64_t>(a, b);
    case DType::i32:
      return compare<std::int32_t>(a, b);
    case DType::u32:
      return compare<std::uint32_t>(a, b);
    case DType::i16:
      return compare<std::int16_t>(a, b);
    case DType::u16:
      return compare<std::uint16_t>(a, b);
    case DType::i8:
      return compare<std::int8_t>(a, b);
    case DType::u8:
    case DType::boolean:
      return compare<std::uint8_t>(a, b);
  }
  return {};
}

}  // namespace tessera::tool
