#pragma once
/// \file
/// layout/: axes, meshes, rank groups, flat layouts. This header: the one place where ranks are computed.
/// Axes, outermost first: pp, dp_replicate, dp_shard, cp, tp (docs/architecture.md); rank = row-major index.

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::layout {

enum class Axis { pp, dp_replicate, dp_shard, cp, tp };
inline constexpr std::array<Axis, 5> all_axes = {Axis::pp, Axis::dp_replicate, Axis::dp_shard, Axis::cp, Axis::tp};
std::string_view axis_name(Axis axis);

/// Sizes per axis, each >= 1; their product is the world size.
struct Mesh {
  std::array<int, 5> sizes = {1, 1, 1, 1, 1};
  int size(Axis axis) const { return sizes[static_cast<std::size_t>(axis)]; }
  int world_size() const;
};

/// Fills a size given as 0 (at most one) from the world size. Throws InputError with the numbers when they do not
/// multiply up.
Mesh make_mesh(std::array<int, 5> sizes, int world_size);

std::array<int, 5> coordinates(const Mesh& mesh, int rank);
int rank_at(const Mesh& mesh, const std::array<int, 5>& coordinates);

/// The ranks that share every coordinate of `rank` except along `axes`, ascending: the group over those axes.
std::vector<int> group_of(const Mesh& mesh, int rank, std::span<const Axis> axes);
/// All groups over `axes`, in order of their first rank: a partition of the world.
std::vector<std::vector<int>> all_groups(const Mesh& mesh, std::span<const Axis> axes);

}  // namespace tessera::layout
