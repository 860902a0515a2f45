#pragma once
/// \file
/// Who trains a face's module together: the ranks that have other rows, and those that hold other parts of each layer
/// (--tp_size, parallel/tensor_parallel.h).

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

/// A setting of the mesh that the faces do not follow, and what serves instead.
struct RefusedAxis {
  std::string_view setting;  ///< its name
  std::string_view remedy;   ///< a clause that ends the message
};
/// pp_size, cp_size, ep_size, etp_size: each asks for more than a module and a loss that the caller computes.
std::span<const RefusedAxis> refused_axes();
/// Throws InputError for a setting of refused_axes() that is given, with its remedy.
void check_axes(const ParallelConfig& parallel);

/// A copyable value; its groups are the World's.
struct TrainingRanks {
  comm::Group all;     ///< everyone: checkpoints are written, and errors agreed upon, by all of them
  comm::Group data;    ///< those that have other rows (dp), over which the sharding engine divides
  comm::Group tensor;  ///< those with the same rows that hold other parts of each layer (tp); empty: nothing is cut
  layout::TensorPlan plan = {};  ///< how, for a module of the user's own
};
/// Joins the job unless the program has done so (tessera::init), and makes the groups of its mesh. `given`: the only
/// ranks there are, instead of all. Collective. Throws InputError for what check_axes() refuses, for sizes that do not
/// divide the ranks, for tp_size beside `given`, and for a plan without tp_size.
TrainingRanks make_training_ranks(const RunConfig& config, layout::TensorPlan plan = {}, comm::Group given = {});

/// The plan by which the module is cut: ranks.plan, or that of its family where the module is one of ours. Throws
/// InputError for a module that has none, and for a mixture of experts.
layout::TensorPlan plan_of(const TrainingRanks& ranks, const torch::nn::Module& module);

/// The first rank's parameters for all ranks of the group (the parts of one module must be cut out of the same values).
/// Those that have no memory yet are left out. Collective.
void share_values(const torch::nn::Module& module, const comm::Group& group);

}  // namespace tessera::faces
