#include <tessera/kernels/cpu/eight_bit.h>

#include <algorithm>
#include <array>

namespace tessera::kernels {
namespace {

using Numbers = std::array<float, eight_bit_count>;

/// Corresponds to bitsandbytes' create_dynamic_map(signed) with max_exponent_bits 7 and total_bits 8.
Numbers make_numbers(bool with_sign) {
  Numbers numbers{};
  std::size_t count = 0;
  double decade = 1e-6;
  for (int exponent = 0; exponent < 7; ++exponent, decade *= 10) {
    const int parts = (with_sign ? 1 : 2) << exponent;
    for (int i = 0; i < parts; ++i) {
      const auto middle = static_cast<float>(decade * (0.1 + 0.9 * (i + 0.5) / parts));
      numbers[count++] = middle;
      if (with_sign) numbers[count++] = -middle;
    }
  }
  numbers[count++] = 0;
  numbers[count++] = 1;
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

}  // namespace

const float* eight_bit_numbers(EightBitMap map) {
  static const Numbers with_sign = make_numbers(true), without_sign = make_numbers(false);
  return map == EightBitMap::with_sign ? with_sign.data() : without_sign.data();
}

}  // namespace tessera::kernels
