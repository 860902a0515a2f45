#pragma once
/// \file
/// Converts a torch::nn::Module to units: the module tree that the wrap policies (layout/units.h) divide, and the flat
/// groups that each unit's parameters form.

#include <torch/nn/module.h>

#include <tessera/layout/units.h>
#include <tessera/parallel/replicas.h>

#include <string>
#include <vector>

namespace tessera::parallel {

/// A module's parameters (tied ones once, under their first name, in registration order) and its tree, whose parameter
/// indices refer to them.
struct ModuleParameters {
  std::vector<NamedTensor> parameters;
  layout::ModuleTree tree;
  std::vector<bool> of_batch_norm;      ///< by parameter; all false unless BatchNorms form separate groups
  std::vector<bool> shared_by_experts;  ///< by parameter: ShardingOptions::shared_by_experts
};
ModuleParameters parameters_of(const torch::nn::Module& module, bool separate_batch_norm = false);

/// Whether `module` is one of torch's BatchNorm modules.
bool is_batch_norm(const torch::nn::Module& module);

/// Parameters of one unit in one flat buffer: one dtype, all trained or all frozen, all or none of a BatchNorm, all or
/// none with expert replicas. (A BatchNorm computes in the dtype of its statistics, so param_dtype does not apply to
/// it, as in PyTorch's FSDP, torch/distributed/fsdp/_wrap_utils.py.)
struct GroupPlan {
  std::string name;  ///< "h.0", "h.0 (frozen)", "bucket 2"
  std::size_t unit;  ///< index of the unit, counting only units that have groups
  bool trained;
  bool stays_whole;                     ///< between steps, because of the persistence threshold
  std::vector<std::size_t> parameters;  ///< indices into ModuleParameters::parameters
  bool of_batch_norm = false;
  bool shared_by_experts = false;
  bool root = false;  ///< whether it is part of the root, the unit of all parameters that no other unit has
};

struct UnitPlan {
  std::string name;
  bool root;
  std::vector<std::size_t> groups;
};

struct GroupingPlan {
  std::vector<UnitPlan> units;
  std::vector<GroupPlan> groups;
};

/// Units by `policy`; parameters of at most `persistence_threshold` elements form a separate unit "small parameters",
/// which stays whole between steps.
GroupingPlan group_by_units(const ModuleParameters& module, const layout::WrapPolicy& policy,
                            std::int64_t persistence_threshold);
/// Bucket sizes for strategies that keep whole parameters.
struct BucketSizes {
  double first_mb = 1, mb = 25;              ///< MiB; the first bucket is small, so that communication starts early
  std::vector<std::size_t> unit_of = {};     ///< by parameter; no bucket spans two units; empty: one unit
  std::vector<bool> shared_by_experts = {};  ///< by parameter; no bucket mixes the two kinds; empty: none is shared
};

/// Lists of `parameters` by index, in the order of reduction: layout::assign_buckets over `order`, with one dtype, one
/// unit and one kind of reduction per list.
std::vector<std::vector<std::size_t>> assign_buckets(const std::vector<NamedTensor>& parameters,
                                                     const std::vector<std::size_t>& order, const BucketSizes& sizes);

/// The unit of each of the module's parameters, by index; empty when the policy is none.
std::vector<std::size_t> units_by_parameter(const ModuleParameters& module, const layout::WrapPolicy& policy);

/// For strategies that keep whole parameters and divide optimizer states: trained parameters in buckets, in reverse
/// registration order, which is roughly the order of their gradients; each bucket is a unit. Frozen parameters are not
/// grouped.
GroupingPlan group_by_buckets(const ModuleParameters& module, const BucketSizes& sizes);

}  // namespace tessera::parallel
