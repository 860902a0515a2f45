#include <tessera/image/prepare.h>

#include <algorithm>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/image/plugin.h>
#include <tessera/image/resize.h>

namespace tessera::image {
namespace {

/// int(255 mean), LLaVA's border colour.
std::array<std::uint8_t, 3> mean_colour(const std::array<float, 3>& mean) {
  std::array<std::uint8_t, 3> colour{};
  for (std::size_t i = 0; i < 3; ++i)
    colour[i] = static_cast<std::uint8_t>(std::clamp(static_cast<double>(mean[i]) * 255, 0.0, 255.0));
  return colour;
}

/// Scales by the shorter side, as transformers' get_resize_output_image_size does.
std::pair<std::int64_t, std::int64_t> size_for(const Image& image, std::int64_t side) {
  const std::int64_t shorter = std::min(image.width, image.height), longer = std::max(image.width, image.height);
  const auto other = static_cast<std::int64_t>(static_cast<double>(side * longer) / static_cast<double>(shorter));
  return image.width <= image.height ? std::pair{side, other} : std::pair{other, side};
}

/// The normalized value of each of the 256 sample values of a channel. transformers rescales in fp64, rounds to fp32,
/// and subtracts and divides in fp32.
std::array<float, 256> values_of(float mean, float deviation) {
  std::array<float, 256> values{};
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = (static_cast<float>(static_cast<double>(i) * (1.0 / 255)) - mean) / deviation;
  return values;
}

}  // namespace

void prepare(const Image& image, const Preparation& how, const std::string& name, std::span<float> out) {
  TESSERA_CHECK(how.side >= 1 && static_cast<std::int64_t>(out.size()) == how.side * how.side * 3, out.size(),
                " numbers for an image of side ", how.side);
  if (how.pad) check_size(std::max(image.width, image.height), std::max(image.width, image.height), name);
  const Image square = how.pad ? padded_to_square(image, mean_colour(how.mean)) : image;
  const auto [width, height] = size_for(square, how.side);
  check_size(width, height, name);
  const Image seen = center_crop(resized(square, width, height), how.side, how.side);
  const auto pixels = static_cast<std::size_t>(how.side * how.side);
  for (std::size_t channel = 0; channel < 3; ++channel) {
    const std::array<float, 256> values = values_of(how.mean[channel], how.deviation[channel]);
    for (std::size_t i = 0; i < pixels; ++i) out[channel * pixels + i] = values[seen.rgb[3 * i + channel]];
  }
}

}  // namespace tessera::image
