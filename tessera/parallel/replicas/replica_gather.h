#pragma once
/// \file
/// Joins the replicas' outputs, and defines the one autograd node that represents all their graphs: its backward runs
/// each replica's backward on the replica's team and adds the gradients in replica order.

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <tessera/parallel/replicas/replica_modules.h>
#include <tessera/parallel/replicas/replica_teams.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tessera::parallel {

/// The state of a forward on all replicas, as needed for gathering and backward.
struct ReplicaCall final : torch::CustomClassHolder {
  std::shared_ptr<ReplicaTeams> teams;
  std::vector<std::int64_t> rows;  ///< per replica that ran
  c10::Device output_device = c10::kCPU;
  std::function<std::string(int)> name;  ///< names a replica, for messages
  std::vector<at::Tensor> buffers;       ///< buffers of a module that all replicas call

  /// The tensors that need gradients: arguments, then parameters.
  struct Variable {
    at::Tensor tensor;
    bool scattered = false;  ///< true: gradients of the parts are joined; false: they are added
  };
  std::vector<Variable> variables;

  struct Replica {
    std::vector<at::Tensor> outputs;           ///< outputs with the replica's graph
    std::vector<ReplicaModules::Leaf> leaves;  ///< .parameter: index in variables
  };
  std::vector<Replica> replicas;
  bool used_up = false;  ///< a backward that did not keep the graph has run

  /// One output, as checked by gather().
  struct Output {
    bool defined = false;
    bool scalar = false;  ///< without dimensions: the replica's number is its index
    bool differentiable = false;
    std::vector<std::int64_t> begins = {};  ///< per replica: its first row in the joined tensor
  };
  std::vector<Output> outputs;
};

/// The outputs joined along dimension 0, differentiable with respect to call->variables (none: plain tensors). Throws
/// Error when replicas returned tensors that do not fit together.
std::vector<at::Tensor> gather(const c10::intrusive_ptr<ReplicaCall>& call);

}  // namespace tessera::parallel
