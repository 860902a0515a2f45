#pragma once
/// \file
/// A copy that also checks its data: whether gradients are finite needs no separate pass.

#include <cstdint>

namespace tessera::kernels {

/// to[i] = from[i] for n elements that do not overlap; returns true if none is infinite or NaN.
bool copy_finite(float* to, const float* from, std::int64_t n);

}  // namespace tessera::kernels
