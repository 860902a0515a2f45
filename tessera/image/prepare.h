#pragma once
/// \file
/// What a CLIP tower takes of an image: transformers' CLIPImageProcessor
/// (https://github.com/huggingface/transformers/blob/main/src/transformers/models/clip/image_processing_clip.py) with
/// what LLaVA does before it (llava/train/train.py, image_aspect_ratio).

#include <tessera/image/image.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace tessera::image {

struct Preparation {
  std::int64_t side = 0;  ///< pixels of the square that is seen
  std::array<float, 3> mean{}, deviation{1, 1, 1};
  bool pad = false;  ///< a square is made by a border of the mean colour; else what is outside the middle is cut off
};

/// Writes side * side * 3 floats: red, green and blue planes, rows from the top, (value / 255 - mean) / deviation.
/// The shorter side is resized to `side` (the longer one to a whole number, rounded down), then the middle is cut out.
/// Throws InputError, naming the image, where the long side is so long that the result would have more than
/// most_pixels.
void prepare(const Image& image, const Preparation& how, const std::string& name, std::span<float> out);

}  // namespace tessera::image
