#pragma once
/// \file
/// A captured step: LibTorch operators over values in single-assignment form, forward and backward in execution order.

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <tessera/xla/capture/draws.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tessera::xla {

struct ValueInfo {
  std::vector<std::int64_t> sizes;
  at::ScalarType type = at::kFloat;
};

/// An argument, in the order of the operator's schema.
struct Argument {
  bool tensors = false;         ///< a tensor or a list of tensors; otherwise `constant`
  std::vector<ValueId> values;  ///< no_value for an absent one
  c10::IValue constant;
};

struct Node {
  std::string op;        ///< without namespace and overload: "add"; in place: "add_"
  std::string overload;  ///< "Tensor"
  std::vector<Argument> arguments;
  std::vector<ValueId> results;
  bool backward = false;             ///< called by an autograd node
  std::int32_t last_parameter = -1;  ///< index in Graph::parameters of the parameter last used by forward; -1: none yet
};

struct Graph {
  std::vector<ValueInfo> values;
  std::vector<ValueId> parameters;   ///< in the caller's order
  std::vector<std::string> modules;  ///< each parameter's module, "blocks.3.attention"; "": the root
  std::vector<ValueId> inputs;       ///< likewise
  std::vector<std::pair<ValueId, at::Tensor>> constants;
  std::vector<Draw> draws;
  std::vector<Node> nodes;
  std::vector<ValueId> outputs;  ///< no_value for an absent one
};

}  // namespace tessera::xla
