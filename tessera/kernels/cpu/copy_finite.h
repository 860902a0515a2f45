#pragma once
/// \file
/// A copy that looks at what it copies: whether gradients are finite costs no pass of its own.

#include <cstdint>

namespace tessera::kernels {

/// to[i] = from[i] for n elements that do not overlap; true when none is infinite or NaN.
bool copy_finite(float* to, const float* from, std::int64_t n);

}  // namespace tessera::kernels
