#pragma once
/// \file
/// Resizing and cutting as PIL.Image does it.

#include <tessera/image/image.h>

#include <array>
#include <cstdint>

namespace tessera::image {

/// Bicubic (a = -0.5) with the filter stretched by the factor of a reduction, so that every pixel counts, first along
/// rows and then along columns, each rounded to 8 bits: Pillow's Image.resize(size, BICUBIC), of
/// https://github.com/python-pillow/Pillow/blob/main/src/libImaging/Resample.c, to the bit where both sides become
/// smaller or both larger (Pillow 13 does columns first where the height shrinks and the width grows). Sides of at
/// least 1.
Image resized(const Image& image, std::int64_t width, std::int64_t height);

/// The middle of an image, which is at least as large: its corner is at half of what is left over, rounded down, as in
/// transformers' image_transforms.center_crop.
Image center_crop(const Image& image, std::int64_t width, std::int64_t height);

/// A square as large as the longer side, the image in its middle (rounded down) and a colour around it: LLaVA's
/// expand2square.
Image padded_to_square(const Image& image, std::array<std::uint8_t, 3> colour);

}  // namespace tessera::image
