#pragma once
/// \file
/// Tensor and sequence parallelism for any torch::nn::Module, unedited: parameters are cut over ranks by a plan of name
/// patterns, and LibTorch's linear and embedding do what the cut means.
///
///   const layout::Mesh mesh = layout::parse_mesh("dp=2,tp=2", world.size());
///   tessera::TensorParallel tensor(*net, {.group = comm::mesh_group(world, mesh, {{Axis::tp}}),
///                                         .plan = {{"attention.query", TensorStyle::colwise}, ...}});
///   tessera::Sharded fsdp(*net, {.group = comm::mesh_group(world, mesh, {{Axis::dp_shard}})});   // of the parts
///
/// The module takes the number of its heads from its activations (`view({b, t, -1, head_size})`), as an output of
/// colwise is cut: each rank has its heads. A module that fixes the number (torch::nn::MultiheadAttention does) takes
/// colwise_gather_output and rowwise_split_input there: its matrices are cut, its attention is not.

#include <torch/nn/module.h>

#include <tessera/comm/group.h>
#include <tessera/layout/tensor_plan.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tessera {

using layout::TensorPlan;
using layout::TensorStyle;

/// How a module is cut over the ranks of tp.
struct TensorParallelOptions {
  comm::Group group = {};  ///< the ranks of tp; empty: all of world()
  TensorPlan plan = {};    ///< what no rule names stays whole on every rank
  /// Between cut layers a rank goes on with tokens [r T / n, (r + 1) T / n) of [B, T, ...]: the norms there must have
  /// the style sequence_parallel, their gradients are summed. (Passes without gradients work on whole rows.)
  bool sequence_parallel = false;
  /// Products of row-cut layers on [B, T, ...] are formed in two parts of the batch: the first is summed over the ranks
  /// while the second is computed. (The sum of a column-cut layer's input gradients always goes on beside the gradients
  /// of its weights.)
  bool overlap_products = false;
  bool check_values = true;  ///< false: the values come later, into the parts
  /// Gives a parameter that has no memory yet (deferred construction) memory and its whole value; called right before
  /// it is cut, so that no more than one is ever there whole. Empty: its initialisers do. Those that stay whole are not
  /// asked for, and stay without memory.
  std::function<void(const std::string& name, const at::Tensor& parameter)> fill = {};
};

/// A parameter of which this rank holds a part.
struct TensorParallelParameter {
  std::string name;         ///< as the module's named_parameters() has it
  at::Tensor parameter;     ///< the module's own, with the part as its value
  layout::TensorPart part;  ///< which elements of the whole parameter it is
};

/// A module whose parameters are cut over the ranks of tp, from now until restore().
class TensorParallel {
 public:
  /// Cuts the parameters: each rank keeps its part of the values it has, so all must have the same (a seed, a file).
  /// Before a sharding engine or an optimizer sees them. Collective. Throws InputError, before anything is changed, for
  /// a rule that matches nothing, a parameter that does not divide, ranks with other modules, plans or values. In the
  /// first backward, for a parameter that is whole and whose gradients differ between the ranks: its rule is missing.
  TensorParallel(torch::nn::Module& module, TensorParallelOptions options);
  TensorParallel(TensorParallel&&) noexcept;
  ~TensorParallel();  ///< the parameters stay cut

  const TensorParallelOptions& options() const;  ///< as given; an empty group has become that of world()
  /// In the order of registration, tied ones once; whole ones are left out.
  const std::vector<TensorParallelParameter>& parameters() const;
  /// Gives the module its whole parameters back, without gradients. Collective; after a sharding engine has given back
  /// the parts.
  void restore();

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

/// The shape that a parameter has without tensor parallelism.
std::vector<std::int64_t> whole_shape(const at::Tensor& parameter);
/// Something laid out like the part of `parameter` that this rank holds (its value, gradient, a state) -> the whole, on
/// every rank of tp. Collective over them where the parameter is cut.
at::Tensor gather_tensor_parts(const at::Tensor& parameter, const at::Tensor& part);
/// The part of `whole` that this rank holds of `parameter`; all of it where it is not cut.
at::Tensor own_tensor_part(const at::Tensor& parameter, const at::Tensor& whole);

}  // namespace tessera
