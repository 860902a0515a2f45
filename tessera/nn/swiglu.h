#pragma once
/// \file
/// The gated activations of the Llama family (Shazeer 2020, "GLU Variants Improve Transformer").

#include <ATen/core/Tensor.h>

namespace tessera::nn {

/// silu(gate) * up, silu(g) = g / (1 + exp(-g)). Same shapes.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);
/// gelu(gate) * up, gelu in its tanh form (gelu.h). Same shapes.
at::Tensor geglu_tanh(const at::Tensor& gate, const at::Tensor& up);

enum class GateKind { silu, gelu_tanh };
/// swiglu() or geglu_tanh().
at::Tensor gated(GateKind kind, const at::Tensor& gate, const at::Tensor& up);

}  // namespace tessera::nn
