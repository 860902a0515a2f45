#pragma once
/// \file
/// Resizing and cropping with PIL.Image's results.

#include <tessera/image/image.h>

#include <array>
#include <cstdint>

namespace tessera::image {

/// Bicubic resampling (a = -0.5), first along rows, then along columns, each rounded to 8 bits; for a reduction the
/// filter is stretched by its factor, so that every pixel contributes. Bit-identical to Pillow's Image.resize(size,
/// BICUBIC) (https://github.com/python-pillow/Pillow/blob/main/src/libImaging/Resample.c) if both sides shrink or both
/// grow (Pillow 13 resizes columns first when the height shrinks and the width grows). Sides of at least 1.
Image resized(const Image& image, std::int64_t width, std::int64_t height);

/// Crops the centre of an image that is at least as large: the offset is half of the excess, rounded down, as in
/// transformers' image_transforms.center_crop.
Image center_crop(const Image& image, std::int64_t width, std::int64_t height);

/// Pads to a square with the longer side: the image centred (rounded down), `colour` around it. LLaVA's expand2square.
Image padded_to_square(const Image& image, std::array<std::uint8_t, 3> colour);

}  // namespace tessera::image
