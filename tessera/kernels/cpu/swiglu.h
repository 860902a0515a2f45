#pragma once
/// \file
/// The gated activation of the Llama family (Shazeer 2020), forward and backward.

#include <cstdint>

namespace tessera::kernels {

/// y[i] = silu(gate[i]) * up[i], silu(g) = g / (1 + exp(-g)). y may be gate or up.
void swiglu(const float* gate, const float* up, float* y, std::int64_t n);

/// dgate = dy * up * silu'(gate), dup = dy * silu(gate). dgate and dup may be any of the inputs.
void swiglu_backward(const float* gate, const float* up, const float* dy, float* dgate, float* dup, std::int64_t n);

}  // namespace tessera::kernels
