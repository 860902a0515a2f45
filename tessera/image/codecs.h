#pragma once
/// \file
/// Inside the plug-in: the two decoders (image.h).

#include <tessera/image/image.h>

namespace tessera::image {

Image decode_jpeg(std::span<const std::byte> bytes, const std::string& name);
Image decode_png(std::span<const std::byte> bytes, const std::string& name);

}  // namespace tessera::image
