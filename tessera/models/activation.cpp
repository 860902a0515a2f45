#include <tessera/models/activation.h>

#include <tessera/base/error.h>

namespace tessera::models {

Activation activation_of(architectures::Activation activation) {
  switch (activation) {
    case architectures::Activation::gelu_tanh:
      return Activation::gelu_tanh;
    case architectures::Activation::gelu_erf:
      return Activation::gelu_erf;
    case architectures::Activation::relu:
      return Activation::relu;
    case architectures::Activation::relu_squared:
      return Activation::relu_squared;
    case architectures::Activation::silu:
      return Activation::silu;
  }
  throw Error("activation out of range");
}

nn::GateKind gate_of(architectures::Gate gate) {
  return gate == architectures::Gate::silu ? nn::GateKind::silu : nn::GateKind::gelu_tanh;
}

}  // namespace tessera::models
