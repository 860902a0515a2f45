#include <tessera/comm/mesh_groups.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::comm {

Group mesh_group(World& world, const layout::Mesh& mesh, std::span<const layout::Axis> axes) {
  if (mesh.world_size() != world.size())
    throw InputError(
        concat("mesh ", describe(mesh), " is of ", mesh.world_size(), " ranks, the world of ", world.size()));
  std::vector<std::string> names;
  for (const layout::Axis axis : axes) names.emplace_back(axis_name(axis));
  Group mine;
  for (const std::vector<int>& ranks : all_groups(mesh, axes)) {
    if (static_cast<int>(ranks.size()) == world.size()) return world.group();
    if (const Group made = world.new_group(ranks, concat(join(names, "-"), " ", ranks.front()))) mine = made;
  }
  return mine;
}

}  // namespace tessera::comm
