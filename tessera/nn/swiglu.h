#pragma once
/// \file
/// The gated activation of the Llama family.

#include <ATen/core/Tensor.h>

namespace tessera::nn {

/// silu(gate) * up, silu(g) = g / (1 + exp(-g)) (Shazeer 2020, "GLU Variants Improve Transformer"). Same shapes.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

}  // namespace tessera::nn
