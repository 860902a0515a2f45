#include <tessera/parallel/context/groups.h>

#include <tessera/base/error.h>
#include <tessera/comm/mesh_groups.h>

#include <array>

namespace tessera {
namespace {

constexpr std::array<layout::Axis, 1> axes = {layout::Axis::cp};

}  // namespace

ContextGroups context_groups(comm::World& world, const layout::Mesh& mesh, ContextMethod method, int head_ranks) {
  const int ranks = mesh.size(layout::Axis::cp), share = layout::head_ranks_of(method, ranks, head_ranks);
  const comm::Group all = comm::mesh_group(world, mesh, axes);
  if (method != ContextMethod::a2a_p2p) return context_groups(all, method);
  ContextGroups groups{.method = method, .all = all};
  const auto join = [&](const std::vector<std::vector<int>>& lists, const char* name, comm::Group& mine) {
    for (const std::vector<int>& list : lists)
      if (const comm::Group made = world.new_group(list, concat(name, ' ', list.front()))) mine = made;
  };
  for (const std::vector<int>& members : layout::all_groups(mesh, axes)) {
    join(layout::head_groups(members, share), "cp-heads", groups.heads);
    join(layout::ring_groups(members, share), "cp-ring", groups.ring);
  }
  return groups;
}

ContextGroups context_groups(const comm::Group& group, ContextMethod method) {
  if (method == ContextMethod::a2a_p2p)
    throw InputError("context parallelism by a2a+p2p needs groups of two levels: take them from a mesh");
  ContextGroups groups{.method = method, .all = group};
  (method == ContextMethod::a2a ? groups.heads : groups.ring) = group;
  return groups;
}

}  // namespace tessera
