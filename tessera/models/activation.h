#pragma once
/// \file
/// The activations of MLPs, selected by an architecture's enumerators (architectures/spec.h).

#include <tessera/architectures/spec.h>
#include <tessera/nn/activation.h>
#include <tessera/nn/swiglu.h>

namespace tessera::models {

using nn::activated;
using nn::Activation;

Activation activation_of(architectures::Activation activation);
nn::GateKind gate_of(architectures::Gate gate);

}  // namespace tessera::models
