#pragma once
/// \file
/// The activations of MLPs that have no gate, by transformers' names (transformers/activations.py).

#include <tessera/base/value.h>
#include <tessera/nn/activation.h>

namespace tessera::models {

using nn::activated;
using nn::Activation;

/// The one that `key` names: gelu_new, gelu_pytorch_tanh, gelu_fast (by tanh); gelu (exact); relu; relu2; silu, swish.
/// Another one throws InputError "file:line:column: ...".
Activation read_activation(const Value& json, const char* key, Activation otherwise);

}  // namespace tessera::models
