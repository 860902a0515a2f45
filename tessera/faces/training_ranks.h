#pragma once
/// \file
/// The ranks that train a face's module together: those with different rows, and those with different parts of each
/// layer (--tp_size, parallel/tensor_parallel.h).

#include <tessera/comm/group.h>
#include <tessera/layout/tensor_plan.h>

#include <torch/nn/module.h>

#include <span>
#include <string_view>

namespace tessera {
struct ParallelConfig;
struct RunConfig;
}  // namespace tessera

namespace tessera::faces {

/// A setting of the mesh that the faces do not support, and its replacement.
struct RefusedAxis {
  std::string_view setting;  ///< its name
  std::string_view remedy;   ///< a clause that ends the message
};
/// pp_size, cp_size, ep_size, etp_size: each needs more than a module and a loss computed by the caller.
std::span<const RefusedAxis> refused_axes();
/// Throws InputError, with the remedy, for a setting of refused_axes() that is set.
void check_axes(const ParallelConfig& parallel);

/// A copyable value; its groups belong to the World.
struct TrainingRanks {
  comm::Group all;     ///< all ranks: they write checkpoints and agree on errors together
  comm::Group data;    ///< ranks with different rows (dp), over which the sharding engine divides
  comm::Group tensor;  ///< ranks with the same rows, different parts of each layer (tp); empty: nothing is cut
  layout::TensorPlan plan = {};  ///< how the user's own module is cut
};
/// Joins the job unless the program has done so (tessera::init), and creates the groups of its mesh. `given`: use only
/// these ranks. Collective. Throws InputError for settings that check_axes() refuses, for sizes that do not divide the
/// ranks, for tp_size together with `given`, and for a plan without tp_size.
TrainingRanks make_training_ranks(const RunConfig& config, layout::TensorPlan plan = {}, comm::Group given = {});

/// The plan for cutting the module: ranks.plan, or its family's if the module is one of ours. Throws InputError for a
/// module without a plan, and for a mixture of experts.
layout::TensorPlan plan_of(const TrainingRanks& ranks, const torch::nn::Module& module);

/// Copies the first rank's parameters to all ranks of the group (the parts of one module must be cut from the same
/// values). Skips parameters without memory. Collective.
void share_values(const torch::nn::Module& module, const comm::Group& group);

}  // namespace tessera::faces
