#include <tessera/image/resize.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <tessera/base/error.h>

namespace tessera::image {
namespace {

constexpr int precision_bits =
    32 - 8 - 2;  // fraction bits of a weight: its product with an 8-bit sample fits in 32 bits with sign and headroom

double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

/// The source pixels of one result pixel: fixed-point weights of the pixels from `first` on.
struct Taps {
  std::int64_t first = 0;
  std::vector<std::int32_t> weights;
};

std::vector<Taps> taps_of(std::int64_t from, std::int64_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to), stretch = std::max(scale, 1.0);
  const double support = 2 * stretch;
  std::vector<Taps> all;
  for (std::int64_t x = 0; x < to; ++x) {
    const double center = (static_cast<double>(x) + 0.5) * scale;
    const std::int64_t first = std::max<std::int64_t>(0, static_cast<std::int64_t>(center - support + 0.5));
    const std::int64_t end = std::min(from, static_cast<std::int64_t>(center + support + 0.5));
    std::vector<double> weights;
    double sum = 0;
    for (std::int64_t i = first; i < end; ++i) {
      weights.push_back(bicubic((static_cast<double>(i) - center + 0.5) * (1 / stretch)));
      sum += weights.back();
    }
    Taps taps{first, {}};
    for (double weight : weights) {
      if (sum != 0) weight /= sum;
      taps.weights.push_back(static_cast<std::int32_t>((weight < 0 ? -0.5 : 0.5) + weight * (1 << precision_bits)));
    }
    all.push_back(std::move(taps));
  }
  return all;
}

std::uint8_t in_eight_bits(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp<std::int32_t>(sum >> precision_bits, 0, 255));
}

constexpr std::int32_t half = 1 << (precision_bits - 1);

Image resized_rows(const Image& image, std::int64_t width) {
  Image out{width, image.height, std::vector<std::uint8_t>(static_cast<std::size_t>(width * image.height * 3))};
  const std::vector<Taps> taps = taps_of(image.width, width);
  for (std::int64_t y = 0; y < image.height; ++y) {
    const std::uint8_t* row = image.rgb.data() + y * image.width * 3;
    std::uint8_t* to = out.rgb.data() + y * width * 3;
    for (const Taps& tap : taps) {
      std::array<std::int32_t, 3> sums = {half, half, half};
      const std::uint8_t* pixel = row + tap.first * 3;
      for (const std::int32_t weight : tap.weights)
        for (int channel = 0; channel < 3; ++channel) sums[static_cast<std::size_t>(channel)] += *pixel++ * weight;
      for (const std::int32_t sum : sums) *to++ = in_eight_bits(sum);
    }
  }
  return out;
}

Image resized_columns(const Image& image, std::int64_t height) {
  const auto row_bytes = static_cast<std::size_t>(image.width * 3);
  Image out{image.width, height, std::vector<std::uint8_t>(row_bytes * static_cast<std::size_t>(height))};
  std::vector<std::int32_t> sums(row_bytes);
  std::uint8_t* to = out.rgb.data();
  for (const Taps& tap : taps_of(image.height, height)) {
    std::fill(sums.begin(), sums.end(), half);
    const std::uint8_t* from = image.rgb.data() + static_cast<std::size_t>(tap.first) * row_bytes;
    for (const std::int32_t weight : tap.weights)
      for (std::int32_t& sum : sums) sum += *from++ * weight;
    for (const std::int32_t sum : sums) *to++ = in_eight_bits(sum);
  }
  return out;
}

/// Copies `from` into `to` at (left, top), where it must fit.
void paste(const Image& from, Image& to, std::int64_t left, std::int64_t top) {
  for (std::int64_t y = 0; y < from.height; ++y)
    std::copy_n(from.rgb.begin() + y * from.width * 3, from.width * 3,
                to.rgb.begin() + ((top + y) * to.width + left) * 3);
}

}  // namespace

Image resized(const Image& image, std::int64_t width, std::int64_t height) {
  TESSERA_CHECK(width >= 1 && height >= 1, "an image of ", width, " x ", height);
  Image out = width == image.width ? image : resized_rows(image, width);
  return height == image.height ? out : resized_columns(out, height);
}

Image center_crop(const Image& image, std::int64_t width, std::int64_t height) {
  TESSERA_CHECK(width <= image.width && height <= image.height, width, " x ", height, " of an image of ", image.width,
                " x ", image.height);
  const std::int64_t left = (image.width - width) / 2, top = (image.height - height) / 2;
  Image out{width, height, {}};
  out.rgb.reserve(static_cast<std::size_t>(width * height * 3));
  for (std::int64_t y = top; y < top + height; ++y) {
    const auto row = image.rgb.begin() + (y * image.width + left) * 3;
    out.rgb.insert(out.rgb.end(), row, row + width * 3);
  }
  return out;
}

Image padded_to_square(const Image& image, std::array<std::uint8_t, 3> colour) {
  const std::int64_t side = std::max(image.width, image.height);
  if (image.width == image.height) return image;
  Image out{side, side, std::vector<std::uint8_t>(static_cast<std::size_t>(side * side * 3))};
  const auto row_bytes = static_cast<std::size_t>(side * 3);
  for (std::size_t i = 0; i < row_bytes; ++i) out.rgb[i] = colour[i % 3];
  for (std::size_t y = 1; y < static_cast<std::size_t>(side); ++y)
    std::copy_n(out.rgb.begin(), row_bytes, out.rgb.begin() + static_cast<std::ptrdiff_t>(y * row_bytes));
  paste(image, out, (side - image.width) / 2, (side - image.height) / 2);
  return out;
}

}  // namespace tessera::image
