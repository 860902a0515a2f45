#pragma once
/// \file
/// A copy that also checks its data, so checking whether gradients are finite does not need a separate pass.

#include <cstdint>

namespace tessera::kernels {

/// to[i] = from[i] for n elements; the ranges must not overlap. Returns true if no element is infinite or NaN.
bool copy_finite(float* to, const float* from, std::int64_t n);

}  // namespace tessera::kernels
