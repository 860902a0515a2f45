#pragma once
/// \file
/// What a model that sees images wants of the data. In a row each image takes `tokens` ids of `token` one after the
/// other, where the text has it; a batch brings the pixels of its images beside the ids (Batch::images), and the model
/// puts what it sees where those ids are.

#include <array>
#include <cstdint>

namespace tessera::data {
/// Filled from a model's config.json and preprocessor_config.json.
struct ImageInput {
  std::int64_t token = 0;   ///< the id; at least the vocabulary's size where the vocabulary has none for it
  std::int64_t tokens = 0;  ///< so many of them for an image
  std::int64_t side = 0;    ///< pixels of an image's side, after resizing and cutting: RGB [3, side, side]
  /// Pixels (value / 255 - mean) / deviation, of red, green and blue.
  std::array<float, 3> mean{}, deviation{1, 1, 1};
};

}  // namespace tessera::data
