#include <tessera/parallel/context/groups.h>

#include <tessera/base/error.h>
#include <tessera/comm/mesh_groups.h>

#include <array>
#include <vector>

namespace tessera {

ContextGroups context_groups(comm::World& world, const layout::Mesh& mesh, ContextMethod method, int head_ranks) {
  using Lists = std::vector<std::vector<int>>;
  const int ranks = mesh.size(layout::Axis::cp), share = layout::head_ranks_of(method, ranks, head_ranks);
  const comm::Group all = comm::MeshGroups(world, mesh).of(layout::Axis::cp);
  if (method != ContextMethod::a2a_p2p) return context_groups(all, method);
  Lists heads, rings;
  for (const std::vector<int>& members : layout::all_groups(mesh, std::array{layout::Axis::cp})) {
    for (std::vector<int>& list : layout::head_groups(members, share)) heads.push_back(std::move(list));
    for (std::vector<int>& list : layout::ring_groups(members, share)) rings.push_back(std::move(list));
  }
  ContextGroups groups{.method = method, .all = all};
  groups.heads = world.split(heads, "cp-heads");
  groups.ring = world.split(rings, "cp-ring");
  return groups;
}

ContextGroups context_groups(const comm::Group& group, ContextMethod method) {
  if (method == ContextMethod::a2a_p2p)
    throw InputError("context parallelism by a2a+p2p needs two levels of groups: create them from a mesh");
  ContextGroups groups{.method = method, .all = group};
  (method == ContextMethod::a2a ? groups.heads : groups.ring) = group;
  return groups;
}

}  // namespace tessera
