#pragma once
/// \file
/// Determines from their bits whether stored numbers are all finite: needs no tensor and no conversion, so a background
/// thread can check a copy during training.

#include <cstddef>
#include <span>
#include <string>

#include <tessera/format/safetensors/safetensors.h>

namespace tessera::checkpoint {

/// True if no element is an infinity or NaN; integers are always finite. `bytes` may have any alignment but must hold
/// whole elements.
bool all_finite(std::span<const std::byte> bytes, format::DType dtype);

/// Error text for a tensor with values that are not finite.
std::string not_finite_text(const std::string& tensor);

}  // namespace tessera::checkpoint
