#pragma once
/// \file
/// How far apart two tensors are, without LibTorch: what `tessera checkpoint diff` tells.

#include <tessera/format/safetensors/safetensors.h>

#include <cstdint>
#include <span>

namespace tessera::tool {

struct TensorDifference {
  std::uint64_t elements = 0;
  std::uint64_t different = 0;  ///< whose bits differ
  double largest = 0;           ///< largest value of |a - b|; a nan against a number: infinite; two nans: 0
  double largest_relative = 0;  ///< largest value of |a - b| / max(|a|, |b|)
  std::uint64_t where = 0;      ///< the element (row-major) of `largest`; the first that differs when all are 0
};

/// Both spans hold the same number of elements of `dtype`, at any alignment.
TensorDifference difference(format::DType dtype, std::span<const std::byte> a, std::span<const std::byte> b);

}  // namespace tessera::tool
