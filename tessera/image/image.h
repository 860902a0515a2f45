#pragma once
/// \file
/// image/: pictures from files, and what a vision encoder takes of them; torch-free. This header: an image in memory,
/// and how one is read.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera::image {

/// 8-bit RGB: rows from top to bottom, of pixels from left to right, of red, green, blue.
struct Image {
  std::int64_t width = 0, height = 0;
  std::vector<std::uint8_t> rgb;  ///< width * height * 3

  bool operator==(const Image&) const = default;
};

/// Pixels that an image may have: PIL.Image refuses more as a decompression bomb (twice its MAX_IMAGE_PIXELS).
inline constexpr std::int64_t most_pixels = 178'956'970;

/// The image in the bytes of a JPEG or PNG file, known by how it begins, as PIL's Image.open(file).convert("RGB") has
/// it: JPEG baseline or progressive, grey, YCbCr, RGB, CMYK or YCCK (those inverted, as Adobe writes them); PNG of all
/// kinds, grey repeated, transparency dropped, of 16 bits the high ones (of grey: at most 255), gamma and the
/// orientation of EXIF not heeded. `name` is what errors call it. Throws InputError for another kind of file, an empty,
/// truncated or damaged one, and one of more than most_pixels; what libjpeg repairs with a warning is read, as by PIL.
/// Throws Error where the plug-in is missing (image/plugin.h). Any number of threads.
Image decode(std::span<const std::byte> bytes, const std::string& name);

/// The same of a file of at most 512 MiB; InputError where it cannot be read.
Image read_image(const std::string& path);

}  // namespace tessera::image
