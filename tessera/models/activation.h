#pragma once
/// \file
/// The activations of MLPs that have no gate, by transformers' names (transformers/activations.py).

#include <ATen/core/Tensor.h>

#include <tessera/base/value.h>

#include <cstdint>

namespace tessera::models {

enum class Activation : std::uint8_t {
  gelu_tanh,  ///< gelu_new, gelu_pytorch_tanh, gelu_fast
  gelu_erf,   ///< gelu
  relu,
  relu_squared,  ///< relu2 (So et al. 2021)
  silu           ///< silu, swish
};

/// The one that `key` names; another one throws InputError "file:line:column: ...".
Activation read_activation(const Value& json, const char* key, Activation otherwise);

/// activation(x + bias); bias [F] may be undefined. x [..., F].
at::Tensor activated(Activation activation, const at::Tensor& x, const at::Tensor& bias);

}  // namespace tessera::models
