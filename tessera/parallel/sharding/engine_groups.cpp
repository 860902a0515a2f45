// The groups of the engine: ranks that divide parameters, and their replicas.
#include <tessera/parallel/sharding/engine.h>

#include <tessera/base/error.h>
#include <tessera/comm/backend.h>
#include <tessera/comm/run_on_all_ranks.h>
#include <tessera/comm/world.h>
#include <tessera/layout/mesh.h>
#include <tessera/parallel/tensor/tensor_shard.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

using parallel::NamedTensor;

namespace {

/// Number of the group's ranks on one host. Collective.
int ranks_on_a_host(const comm::Group& group) {
  const std::int64_t host = world().rank() / world().local_size();
  const auto hosts = comm::all_gather_numbers(group, {host});
  return static_cast<int>(std::ranges::count(hosts, hosts.front()));
}

}  // namespace

void Sharded::Impl::choose_groups() {
  const comm::Group& all = context_.data_parallel;
  int tensor = 1, shards = 1;  // parameters may already be parts (tensor parallelism), each divided among this many
                               // ranks
  for (const NamedTensor& p : parameters_.parameters)
    if (const parallel::TensorShard* const cut = parallel::cut_of(p.tensor)) tensor = cut->group().size();
  if (strategy_.shard_group == ShardGroup::all) shards = all.size();
  if (strategy_.shard_group == ShardGroup::host) shards = ranks_on_a_host(all);
  if (options_.shard_group_size > 0) shards = options_.shard_group_size;
  if (shards < 1 || all.size() % shards != 0)
    throw InputError(concat("sharding: the ", all.size(), " ranks of group '", all.name(),
                            "' cannot be divided into shard groups of ", shards, " (shard_group_size); use a divisor"));
  const auto alone = [&](const char* name) { return comm::Group(comm::make_local_backend(name, all.device())); };
  context_.shards = shards == all.size() ? all : shards == 1 ? alone("shard") : comm::Group();
  context_.replicas = shards == 1 && all.size() > 1 ? all : shards == all.size() ? alone("replica") : comm::Group();
  if (context_.shards && context_.replicas) return;
  const int stages = options_.stages ? options_.stages.size() : 1;
  if (all.size() * tensor * stages != world().size())
    throw InputError(
        "sharding: a hybrid strategy needs the group of all ranks, or of all ranks with the same stage and the same "
        "part "
        "of tensor-parallel layers (other groups cannot be divided)");
  // In the mesh, ranks of other stages, parts and experts are between the group's ranks, so every rank sends its
  // position.
  const std::int64_t first = comm::all_gather_numbers(all, {world().rank()}).front().front();
  const auto places = comm::all_gather_numbers(world().group(), {first, all.rank()});
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<int>> shard_groups, replica_groups;
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    const std::int64_t group = places[rank][0], place = places[rank][1];
    shard_groups[{group, place / shards}].push_back(static_cast<int>(rank));
    replica_groups[{group, place % shards}].push_back(static_cast<int>(rank));
  }
  // If the group includes cp ranks, or holds ranks with the same experts, shards and replicas follow no single mesh
  // axis.
  const bool by_axis = all.name().find("cp") == std::string::npos && !all.name().starts_with("edp");
  const auto split = [&](const auto& groups, layout::Axis axis, const char* name) {
    std::vector<std::vector<int>> lists;
    for (const auto& [place, ranks] : groups) lists.push_back(ranks);
    return world().split(lists, by_axis ? std::string(layout::axis_name(axis)) : name);
  };
  context_.shards = split(shard_groups, layout::Axis::dp_shard, "shards");
  context_.replicas = split(replica_groups, layout::Axis::dp_replicate, "replicas");
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
