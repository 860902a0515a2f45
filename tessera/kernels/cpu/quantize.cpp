#include <tessera/kernels/cpu/quantize.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace tessera::kernels {
namespace {

using DynamicNumbers = std::array<float, dynamic_count>;

DynamicNumbers make_dynamic_numbers() {
  DynamicNumbers numbers{};
  std::size_t count = 0;
  double decade = 1e-6;
  for (int exponent = 0; exponent < 7; ++exponent, decade *= 10) {
    const int items = 1 << exponent;
    const double step = 0.9 / items;
    for (int i = 0; i < items; ++i) {
      const auto number = static_cast<float>(decade * (0.1 + (i + 0.5) * step));
      numbers[count++] = number;
      numbers[count++] = -number;
    }
  }
  numbers[count++] = 0;
  numbers[count++] = 1;
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

const DynamicNumbers& numbers() {
  static const DynamicNumbers made = make_dynamic_numbers();
  return made;
}

/// Midpoints between neighbours.
const std::array<float, dynamic_count - 1>& bounds() {
  static const auto made = [] {
    std::array<float, dynamic_count - 1> between{};
    for (std::size_t i = 0; i < between.size(); ++i) between[i] = (numbers()[i] + numbers()[i + 1]) / 2;
    return between;
  }();
  return made;
}

}  // namespace

const float* dynamic_numbers() { return numbers().data(); }

void quantize_dynamic(const float* x, std::int64_t n, std::uint8_t* codes, float* absmax) {
  for (std::int64_t begin = 0; begin < n; begin += dynamic_block) {
    const std::int64_t end = std::min(n, begin + dynamic_block);
    float most = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      const float size = std::fabs(x[i]);
      if (!(size <= most)) most = std::isnan(most) ? most : size;
    }
    absmax[begin / dynamic_block] = most;
    for (std::int64_t i = begin; i < end; ++i) {
      const float value = most > 0 ? x[i] / most : 0;
      codes[i] =
          static_cast<std::uint8_t>(std::lower_bound(bounds().begin(), bounds().end(), value) - bounds().begin());
    }
  }
}

void dequantize_dynamic(const std::uint8_t* codes, const float* absmax, float offset, std::int64_t first,
                        std::int64_t n, float* y) {
  const float* const number = dynamic_numbers();
  for (std::int64_t i = first; i < first + n; ++i) y[i - first] = number[codes[i]] * absmax[i / dynamic_block] + offset;
}

}  // namespace tessera::kernels
