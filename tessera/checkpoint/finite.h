#pragma once
/// \file
/// Whether stored numbers are all finite, told from their bits: no tensor and no conversion is needed, so a thread
/// beside the training can look at a copy.

#include <cstddef>
#include <span>
#include <string>

#include <tessera/format/safetensors/safetensors.h>

namespace tessera::checkpoint {

/// True when no element is an infinity or NaN; integers always are finite. Any alignment; whole elements.
bool all_finite(std::span<const std::byte> bytes, format::DType dtype);

/// What is said of a tensor that is not.
std::string not_finite_text(const std::string& tensor);

}  // namespace tessera::checkpoint
