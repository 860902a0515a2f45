#pragma once
/// \file
/// The groups of a mesh (layout/mesh.h), named by their axes.

#include <tessera/comm/group.h>
#include <tessera/comm/world.h>
#include <tessera/layout/mesh.h>

#include <span>

namespace tessera::comm {

/// The group over `axes` that this rank is in: "dp_shard 4" in errors, record and timeline, by axis and first rank.
/// Collective over the whole world, in the same order on every rank, whose size is the mesh's; throws InputError
/// otherwise. The world's own group when it is all ranks.
Group mesh_group(World& world, const layout::Mesh& mesh, std::span<const layout::Axis> axes);

}  // namespace tessera::comm
