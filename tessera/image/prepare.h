#pragma once
/// \file
/// Prepares an image for a CLIP tower: transformers' CLIPImageProcessor
/// (https://github.com/huggingface/transformers/blob/main/src/transformers/models/clip/image_processing_clip.py),
/// preceded by LLaVA's padding (llava/train/train.py, image_aspect_ratio).

#include <tessera/image/image.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace tessera::image {

struct Preparation {
  std::int64_t side = 0;  ///< side of the input square in pixels
  std::array<float, 3> mean{}, deviation{1, 1, 1};
  bool pad = false;  ///< pad to a square with the mean colour; otherwise crop to the centre
};

/// Writes side * side * 3 floats: red, green and blue planes, rows from the top, (value / 255 - mean) / deviation. The
/// shorter side is resized to `side` (the longer one rounded down to a whole number), then the centre is cropped.
/// Throws InputError, naming the image, when the resized or padded image would have more than most_pixels.
void prepare(const Image& image, const Preparation& how, const std::string& name, std::span<float> out);

}  // namespace tessera::image
