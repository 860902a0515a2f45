#pragma once
/// \file
/// data/images/: rows with images. This header: from the names of images to their pixels.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include <tessera/data/image_input.h>

namespace tessera::data {

/// Any number of threads may use one.
class ImageReader {
 public:
  /// `pad`: --image_aspect_ratio pad. Throws Error where images cannot be read (image/plugin.h).
  ImageReader(const ImageInput& input, bool pad);
  /// fp32 [files, 3, side, side], as image/prepare.h says, several files at a time. Throws InputError, naming the file,
  /// for one that is no longer there or cannot be read.
  at::Tensor operator()(const std::vector<std::string>& files) const;

 private:
  ImageInput input_;
  bool pad_;
};

}  // namespace tessera::data
