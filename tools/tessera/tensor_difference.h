#pragma once
/// \file
/// Compares two tensors numerically, without LibTorch, for `tessera checkpoint diff`.

#include <tessera/format/safetensors/safetensors.h>

#include <cstdint>
#include <span>

namespace tessera::tool {

struct TensorDifference {
  std::uint64_t elements = 0;
  std::uint64_t different = 0;  ///< elements with different bits
  /// largest value of |a - b|, which is infinite for a nan and a number, and 0 for two nans
  double largest = 0;
  double largest_relative = 0;  ///< largest value of |a - b| / max(|a|, |b|)
  /// index (row-major) of the element with `largest`; if all gaps are 0, of the first element that differs
  std::uint64_t where = 0;
};

/// Both spans contain the same number of elements of `dtype`, at any alignment.
TensorDifference difference(format::DType dtype, std::span<const std::byte> a, std::span<const std::byte> b);

}  // namespace tessera::tool
