#pragma once
/// \file
/// The decoders, libjpeg-turbo and libpng, are used only inside the plug-in libtessera_image.so (the files *_codec.cpp,
/// cmake/Image.cmake), which is loaded when the first image is read. Nothing else includes their headers.

#include <tessera/image/image.h>

#include <cstddef>
#include <span>
#include <string>

namespace tessera::image {

/// The plug-in's functions: decode() for one file type each.
struct ImagePlugin {
  Image (*jpeg)(std::span<const std::byte> bytes, const std::string& name);
  Image (*png)(std::span<const std::byte> bytes, const std::string& name);
};

inline constexpr const char* image_plugin_entry = "tessera_image_plugin";
extern "C" const ImagePlugin* tessera_image_plugin();

/// Loads the plug-in, which is installed next to libtessera_core.so, at the first call. Throws Error, with the remedy,
/// when it was not built or cannot be loaded.
const ImagePlugin& image_plugin();
bool has_image_plugin();  ///< whether the plug-in's file exists

/// Throws InputError, naming the file, for invalid dimensions or more than most_pixels pixels.
void check_size(std::int64_t width, std::int64_t height, const std::string& name);

}  // namespace tessera::image
