#pragma once
/// \file
/// The groups of a mesh (layout/mesh.h), named by their axes.
///
///   comm::MeshGroups groups(world, layout::parse_mesh("dp=2,tp=2"));
///   groups.of(Axis::tp).all_reduce(x).wait();              // "tp 0" or "tp 2", by its first rank
///   groups.over({Axis::dp_shard, Axis::cp});               // dp_shard alone, where cp has one rank

#include <tessera/comm/group.h>
#include <tessera/comm/world.h>
#include <tessera/layout/mesh.h>

#include <initializer_list>
#include <span>

namespace tessera::comm {

/// Copyable; the groups are the World's, which keeps them until shutdown().
///
/// A group is made when it is asked for first. That call waits for the members of this rank's own group only, but every
/// rank of the world must come to it, in the same order among all calls that make groups (World::new_group and split
/// too); asking again for a group that is there is neither collective nor bound to an order. Axes of one rank do not
/// count: over({dp_shard, cp}) is of(dp_shard) when cp has one rank, and a group of one rank is local and free. A group
/// of the ranks of another one (tp of a mesh that has no other axis: the world) shares that one's connections under its
/// own name, so that errors, the record, the timeline, tables and `tessera top` say which axis it was.
class MeshGroups {
 public:
  /// Not collective. Throws InputError when the mesh is not of the world's size.
  MeshGroups(World& world, const layout::Mesh& mesh);

  const layout::Mesh& mesh() const { return mesh_; }  ///< as given to the constructor
  /// The group along `axis` that this rank is in.
  Group of(layout::Axis axis) const { return over(std::span(&axis, 1)); }
  /// The group over several axes of one view, in any order. Throws InputError for axes of two views.
  Group over(std::span<const layout::Axis> axes) const;
  Group over(std::initializer_list<layout::Axis> axes) const { return over(std::span(axes.begin(), axes.size())); }

 private:
  World* world_;
  layout::Mesh mesh_;
};

/// MeshGroups(world, mesh).over(axes), for one group.
Group mesh_group(World& world, const layout::Mesh& mesh, std::span<const layout::Axis> axes);

}  // namespace tessera::comm
