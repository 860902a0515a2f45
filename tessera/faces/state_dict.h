#pragma once
/// \file
/// A module's whole state in tensors by name, as Module::state_dict() is in Python.

#include <ATen/core/Tensor.h>

#include <tessera/faces/training.h>

#include <map>
#include <string>

namespace tessera {

/// Tensors by the names of parameters and buffers, as torch's state_dict() has them.
using StateDict = std::map<std::string, at::Tensor>;

namespace faces {

/// Copies of whole parameters and buffers, on the CPU, in the types in which they are kept. Where the strategy shards
/// parameters, rank 0 has them, and the others get none; else every rank. Collective.
StateDict state_dict(Training& training);

/// Writes a .safetensors file, whole or not at all. Throws Error.
void write_state_dict(const StateDict& tensors, const std::string& path);

}  // namespace faces
}  // namespace tessera
