#include <tessera/comm/mesh_groups.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/comm/backend.h>

#include <algorithm>

namespace tessera::comm {
namespace {

/// The distinct axes with more than one rank, outermost first.
std::vector<layout::Axis> dividing(const layout::Mesh& mesh, std::span<const layout::Axis> axes) {
  std::vector<layout::Axis> left;
  for (const layout::Axis axis : axes)
    if (mesh.size(axis) > 1) left.push_back(axis);
  std::sort(left.begin(), left.end());
  left.erase(std::unique(left.begin(), left.end()), left.end());
  return left;
}

std::string joined(std::span<const layout::Axis> axes) {
  std::vector<std::string> names;
  for (const layout::Axis axis : axes) names.emplace_back(axis_name(axis));
  return join(names, "-");
}

}  // namespace

MeshGroups::MeshGroups(World& world, const layout::Mesh& mesh) : world_(&world), mesh_(mesh) {
  if (mesh.world_size() != world.size())
    throw InputError(
        concat("mesh ", describe(mesh), " has ", mesh.world_size(), " ranks, but the world has ", world.size()));
}

Group MeshGroups::over(std::span<const layout::Axis> axes) const {
  static_cast<void>(group_of(mesh_, world_->rank(), axes));  // throws for axes of two views, whatever their sizes
  const std::vector<layout::Axis> divided = dividing(mesh_, axes);
  if (divided.empty()) return Group(make_local_backend(concat(joined(axes), " ", world_->rank()), world_->device()));
  return world_->split(all_groups(mesh_, divided), joined(divided));
}

Group mesh_group(World& world, const layout::Mesh& mesh, std::span<const layout::Axis> axes) {
  return MeshGroups(world, mesh).over(axes);
}

}  // namespace tessera::comm
