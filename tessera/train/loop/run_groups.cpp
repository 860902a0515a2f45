#include <tessera/train/loop/run_groups.h>

#include <tessera/comm/agree.h>
#include <tessera/comm/mesh_groups.h>
#include <tessera/config/core/mesh.h>

#include <array>

namespace tessera::train {

RunGroups make_run_groups(const RunConfig& config, comm::World& world) {
  using layout::Axis;
  RunGroups groups;
  comm::agree(world.group(), [&] { groups.mesh = config::run_mesh(config, world.size(), world.local_size()); });
  if (!groups.cuts()) {
    groups.data = groups.gradients = world.group();
    return groups;
  }
  const auto over = [&](auto... axes) { return comm::mesh_group(world, groups.mesh, std::array{axes...}); };
  groups.data = over(Axis::dp_replicate, Axis::dp_shard);
  groups.gradients = over(Axis::dp_replicate, Axis::dp_shard, Axis::cp);
  groups.tensor = over(Axis::tp);
  if (groups.context_ranks() > 1)
    groups.context =
        context_groups(world, groups.mesh, config.parallel.cp_comm_type, static_cast<int>(config.parallel.cp_a2a_size));
  return groups;
}

}  // namespace tessera::train
