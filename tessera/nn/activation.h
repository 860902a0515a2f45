#pragma once
/// \file
/// The activations of MLPs that have no gate.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tessera::nn {

/// What stands between the two products of an MLP that has no gate.
enum class Activation : std::uint8_t {
  gelu_tanh,  ///< by tanh (Hendrycks & Gimpel 2016, eq. 3)
  gelu_erf,   ///< exact
  relu,
  relu_squared,  ///< So et al. 2021
  silu
};

/// activation(x + bias); bias [F] may be undefined. x [..., F].
at::Tensor activated(Activation activation, const at::Tensor& x, const at::Tensor& bias);

}  // namespace tessera::nn
