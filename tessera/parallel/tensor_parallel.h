#pragma once
/// \file
/// Tensor and sequence parallelism for any unmodified torch::nn::Module: parameters are cut over ranks by a plan of
/// name patterns, and LibTorch's linear and embedding operators act on the cut parameters accordingly.
///
///   const layout::Mesh mesh = layout::parse_mesh("dp=2,tp=2", world.size());
///   tessera::TensorParallel tensor(*net, {.group = comm::mesh_group(world, mesh, {{Axis::tp}}),
///                                         .plan = {{"attention.query", TensorStyle::colwise}, ...}});
///   tessera::Sharded fsdp(*net, {.group = comm::mesh_group(world, mesh, {{Axis::dp_shard}})});   // of the parts
///
/// The module must infer the number of its heads from its activations (`view({b, t, -1, head_size})`), because the
/// output of a colwise layer is cut: each rank has its own heads. A module that fixes the number (as
/// torch::nn::MultiheadAttention does) must use colwise_gather_output and rowwise_split_input: its matrices are cut,
/// its attention is not.

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
  TensorPlan plan = {};    ///< parameters that no rule names stay whole on every rank
  /// Between cut layers a rank continues with tokens [r T / n, (r + 1) T / n) of [B, T, ...]. The norms there must have
  /// the style sequence_parallel; their gradients are summed. (Passes without gradients work on whole rows.)
  bool sequence_parallel = false;
  /// Products of row-cut layers on [B, T, ...] are computed in two parts of the batch: the first is summed over the
  /// ranks while the second is computed. (The sum of a column-cut layer's input gradients always overlaps with the
  /// gradients of its weights.)
  bool overlap_products = false;
  bool check_values = true;  ///< false: the values are loaded later, into the parts
  /// For deferred construction: gives a parameter its memory and its whole value. Called right before the parameter is
  /// cut, so that at most one is whole at any time. Empty: the module's initialisers run. Not called for parameters
  /// that stay whole; they stay without memory.
  std::function<void(const std::string& name, const at::Tensor& parameter)> fill = {};
};

/// A parameter of which this rank holds a part.
struct TensorParallelParameter {
  std::string name;         ///< as in the module's named_parameters()
  at::Tensor parameter;     ///< the module's own, with the part as its value
  layout::TensorPart part;  ///< position of the part in the whole parameter
};

/// A module whose parameters are cut over the ranks of tp until restore().
class TensorParallel {
 public:
  /// Cuts the parameters: each rank keeps its part of its own values, so all ranks must start with the same values
  /// (from a seed or a file). Call before a sharding engine or an optimizer takes the parameters. Collective. Throws
  /// InputError, before anything is changed, for a rule that matches nothing, a parameter that cannot be divided, or
  /// ranks with different modules, plans or values. The first backward throws it for a whole parameter whose gradients
  /// differ between ranks: a rule for it is missing.
  TensorParallel(torch::nn::Module& module, TensorParallelOptions options);
  TensorParallel(TensorParallel&&) noexcept;
  ~TensorParallel();  ///< the parameters stay cut

  const TensorParallelOptions& options() const;  ///< as given; an empty group is replaced by that of world()
  /// The cut parameters in registration order, without repeating tied ones.
  const std::vector<TensorParallelParameter>& parameters() const;
  /// Restores the module's whole parameters, without gradients. Collective; if a sharding engine holds the parts, call
  /// its restore() first.
  void restore();

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

/// The shape that a parameter has without tensor parallelism.
std::vector<std::int64_t> whole_shape(const at::Tensor& parameter);
/// Gathers a tensor laid out like this rank's part of `parameter` (its value, gradient, a state) into the whole, on
/// every rank of tp. Collective over them if the parameter is cut.
at::Tensor gather_tensor_parts(const at::Tensor& parameter, const at::Tensor& part);
/// This rank's part of `whole`, as `parameter` is cut; all of it if `parameter` is not cut.
at::Tensor own_tensor_part(const at::Tensor& parameter, const at::Tensor& whole);

}  // namespace tessera
