#pragma once
/// \file
/// Activations of MLPs without a gate.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tessera::nn {

/// The function between the two products of an MLP without a gate.
enum class Activation : std::uint8_t {
  gelu_tanh,  ///< tanh form (Hendrycks & Gimpel 2016, eq. 3)
  gelu_erf,   ///< exact
  relu,
  relu_squared,  ///< So et al. 2021
  silu
};

/// activation(x + bias); bias [F] may be undefined. x [..., F].
at::Tensor activated(Activation activation, const at::Tensor& x, const at::Tensor& bias);

}  // namespace tessera::nn
