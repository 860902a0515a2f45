#pragma once
/// \file
/// image/: reading images from files and preparing them for a vision encoder; torch-free. This header: an image in
/// memory, and how to read one.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera::image {

/// 8-bit RGB: rows from top to bottom, pixels from left to right, each red, green, blue.
struct Image {
  std::int64_t width = 0, height = 0;
  std::vector<std::uint8_t> rgb;  ///< width * height * 3

  bool operator==(const Image&) const = default;
};

/// Limit on an image's pixels: PIL.Image refuses more as a decompression bomb (twice its MAX_IMAGE_PIXELS).
inline constexpr std::int64_t most_pixels = 178'956'970;

/// Decodes the bytes of a JPEG or PNG file, recognized by its signature, with the same result as PIL's
/// Image.open(file).convert("RGB"). JPEG: baseline or progressive; grey, YCbCr, RGB, CMYK or YCCK (the last two
/// inverted, as Adobe writes them). PNG: all kinds; grey is replicated, transparency dropped, 16-bit samples reduced to
/// their high byte (grey: clipped at 255); gamma and EXIF orientation are ignored. `name` is used in error messages.
/// Throws InputError for other file types, empty, truncated or damaged files, and more than most_pixels pixels; files
/// that libjpeg repairs with a warning are accepted, as by PIL. Throws Error when the plug-in is missing
/// (image/plugin.h). Any number of threads.
Image decode(std::span<const std::byte> bytes, const std::string& name);

/// Decodes a file of at most 512 MiB; throws InputError if it cannot be read.
Image read_image(const std::string& path);

}  // namespace tessera::image
