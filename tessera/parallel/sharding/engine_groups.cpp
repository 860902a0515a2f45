// The groups that the engine works with: those that divide parameters, and those that hold copies.
#include <tessera/parallel/sharding/engine.h>

#include <tessera/base/error.h>
#include <tessera/comm/backend.h>
#include <tessera/comm/world.h>
#include <tessera/layout/mesh.h>
#include <tessera/parallel/tensor/cut.h>

#include <algorithm>
#include <span>
#include <string>

namespace tessera {

using parallel::NamedTensor;

void Sharded::Impl::choose_groups() {
  const comm::Group& all = context_.data_parallel;
  int tensor = 1, shards = 1;  // parameters may be parts already (tensor parallelism), of so many ranks each
  for (const NamedTensor& p : parameters_.parameters)
    if (const parallel::Cut* const cut = parallel::cut_of(p.tensor)) tensor = cut->group().size();
  if (strategy_.shard_group == ShardGroup::all) shards = all.size();
  if (strategy_.shard_group == ShardGroup::host) shards = std::min(all.size(), world().local_size() / tensor);
  if (options_.shard_group_size > 0) shards = options_.shard_group_size;
  if (shards < 1 || all.size() % shards != 0)
    throw InputError(concat("sharding: the ", all.size(), " ranks of group '", all.name(),
                            "' do not divide into shard groups of ", shards, " (shard_group_size); use a divisor"));
  const auto alone = [&](const char* name) { return comm::Group(comm::make_local_backend(name, all.device())); };
  context_.shards = shards == all.size() ? all : shards == 1 ? alone("shard") : comm::Group();
  context_.copies = shards == 1 && all.size() > 1 ? all : shards == all.size() ? alone("copy") : comm::Group();
  if (context_.shards && context_.copies) return;
  const int stages = options_.stages ? options_.stages.size() : 1;
  if (all.size() * tensor * stages != world().size())
    throw InputError(
        "sharding: a hybrid strategy needs the group of all ranks, or all that hold the same stage and the same part "
        "of tensor-parallel layers (other groups cannot be divided)");
  const layout::Mesh mesh =
      layout::make_mesh({.sizes = {stages, all.size() / shards, shards, 1, tensor}}, world().size());
  // With ranks of cp in the group the two lie along no single axis of the run's mesh.
  const bool by_axis = all.name().find("cp") == std::string::npos;
  const auto along = [&](layout::Axis axis, const char* name) {
    const std::string title = by_axis ? std::string(layout::axis_name(axis)) : name;
    return world().split(layout::all_groups(mesh, std::span(&axis, 1)), title);
  };
  context_.shards = along(layout::Axis::dp_shard, "shards");
  context_.copies = along(layout::Axis::dp_replicate, "copies");
}

void Sharded::Impl::restore() {
  for (const auto& group : groups_) group->check_owned();
  if (!plain()) hold(units_with({}), false);
  listening_ = {};
  hooks_.clear();
  const std::lock_guard lock(mutex_);
  for (const auto& group : groups_) group->restore();
  groups_.clear();
  gradients_.reset();
}

}  // namespace tessera
