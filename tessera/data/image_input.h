#pragma once
/// \file
/// The input format of a vision model. In a row each image takes `tokens` consecutive ids `token` at its place in the
/// text. A batch carries the images' pixels separately from the ids (Batch::images), and the model inserts its image
/// features at those ids.

#include <array>
#include <cstdint>

namespace tessera::data {
/// Filled from a model's config.json and preprocessor_config.json.
struct ImageInput {
  std::int64_t token = 0;   ///< the id; at least the vocabulary's size if the vocabulary has no id for it
  std::int64_t tokens = 0;  ///< number of these ids per image
  std::int64_t side = 0;    ///< side of the image in pixels after resizing and cropping: RGB [3, side, side]
  /// Pixels are normalized to (value / 255 - mean) / deviation; red, green and blue.
  std::array<float, 3> mean{}, deviation{1, 1, 1};
};

}  // namespace tessera::data
