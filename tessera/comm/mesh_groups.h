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

/// Copyable; the World owns the groups and keeps them until shutdown().
///
/// A group is created by the first request for it. This call waits only for the members of this rank's own group, but
/// every rank of the world must make it, in the same order among all calls that create groups (World::new_group and
/// split included). Requests for an existing group are not collective and may come in any order. Axes of one rank are
/// ignored: over({dp_shard, cp}) is of(dp_shard) if cp has one rank, and a group of one rank is local and free. A group
/// with the same ranks as an existing one (tp of a mesh that has no other axis: the world) shares that group's
/// connections under its own name, so that errors, the record, the timeline, tables and `tessera top` show the axis.
class MeshGroups {
 public:
  /// Not collective. Throws InputError if the mesh's size differs from the world's.
  MeshGroups(World& world, const layout::Mesh& mesh);

  const layout::Mesh& mesh() const { return mesh_; }  ///< as given to the constructor
  /// This rank's group along `axis`.
  Group of(layout::Axis axis) const { return over(std::span(&axis, 1)); }
  /// The group over several axes of the same view, in any order. Throws InputError for axes of two views.
  Group over(std::span<const layout::Axis> axes) const;
  Group over(std::initializer_list<layout::Axis> axes) const { return over(std::span(axes.begin(), axes.size())); }

 private:
  World* world_;
  layout::Mesh mesh_;
};

/// Shorthand for MeshGroups(world, mesh).over(axes).
Group mesh_group(World& world, const layout::Mesh& mesh, std::span<const layout::Axis> axes);

}  // namespace tessera::comm
