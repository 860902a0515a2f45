#pragma once
/// \file
/// A module's whole state as tensors by name, like Module::state_dict() in Python.

#include <ATen/core/Tensor.h>

#include <tessera/faces/training.h>

#include <map>
#include <string>

namespace tessera {

/// Tensors by the names of parameters and buffers, like torch's state_dict().
using StateDict = std::map<std::string, at::Tensor>;

namespace faces {

/// Copies of whole parameters and buffers, on the CPU, in their stored types. If the strategy shards parameters, only
/// rank 0 gets them; otherwise every rank does. Collective.
StateDict state_dict(Training& training);

/// Writes a .safetensors file atomically. Throws Error.
void write_state_dict(const StateDict& tensors, const std::string& path);

}  // namespace faces
}  // namespace tessera
