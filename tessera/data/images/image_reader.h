#pragma once
/// \file
/// data/images/: rows with images. This header: loads images' pixels by file name.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include <tessera/data/image_input.h>

namespace tessera::data {

/// Thread-safe.
class ImageReader {
 public:
  /// `pad`: --image_aspect_ratio pad. Throws Error if the image plug-in cannot be loaded (image/plugin.h).
  ImageReader(const ImageInput& input, bool pad);
  /// Returns fp32 [files, 3, side, side], prepared by image/prepare.h, several files at a time. Throws InputError,
  /// naming the file, if one no longer exists or cannot be read.
  at::Tensor operator()(const std::vector<std::string>& files) const;

 private:
  ImageInput input_;
  bool pad_;
};

}  // namespace tessera::data
