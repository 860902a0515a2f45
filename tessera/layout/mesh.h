#pragma once
/// \file
/// layout/: axes, meshes, rank groups, flat layouts. This header: the single place where ranks are computed.
///
/// The ranks of a job form a grid; rank = row-major index, so the last axis varies fastest. There are two views of the
/// same ranks, which share only the axis pp:
///
///   dense    pp, dp_replicate, dp_shard, cp, tp    for all layers except experts
///   expert   pp, edp, ep, etp                      experts: ep distributes them, etp cuts each, edp replicates them
///
/// The order is Megatron's ("tp-cp-ep-dp-pp", megatron/core/parallel_state.py, RankGenerator, which lists the fastest
/// axis first) with dp in two parts, as in torchtitan (torchtitan/distributed/parallel_dims.py).

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::layout {

enum class Axis { pp, dp_replicate, dp_shard, cp, tp, edp, ep, etp };  ///< see named_axes() for their communication
enum class View { dense, expert };                                     ///< the two grids of the same ranks

/// Outermost first.
inline constexpr std::array<Axis, 5> dense_axes = {Axis::pp, Axis::dp_replicate, Axis::dp_shard, Axis::cp, Axis::tp};
inline constexpr std::array<Axis, 4> expert_axes = {Axis::pp, Axis::edp, Axis::ep, Axis::etp};
std::span<const Axis> axes_of(View view);  ///< dense_axes or expert_axes
std::string_view axis_name(Axis axis);     ///< "dp_shard" etc.

/// Sizes per axis, each >= 1. Created and checked by make_mesh() or parse_mesh().
struct Mesh {
  std::array<int, 5> sizes = {1, 1, 1, 1, 1};  ///< in the order of dense_axes; their product is the world size
  int ep = 1, etp = 1;                         ///< pp * ep * etp divides the world size

  int world_size() const;     ///< the product of `sizes`
  int size(Axis axis) const;  ///< edp: world_size() / (pp * ep * etp)
};

/// Unchecked sizes; 0: derived from the others.
struct MeshSizes {
  std::array<int, 5> sizes = {1, 1, 1, 1, 1};  ///< at most one may be 0: derived from the world size
  int ep = 1, etp = 0;                         ///< etp 0: same as tp
};

/// Checks the sizes and derives any that are 0. Throws InputError with the rule, the numbers, and sizes that fit.
Mesh make_mesh(const MeshSizes& sizes, int world_size);

/// Parses "pp=2,dp=2,tp=2": names of axes, each at most once (dp means dp_shard; edp is derived and not allowed); a
/// size of 0 or -1 is derived. world_size 0: the product of the sizes. Throws InputError.
Mesh parse_mesh(std::string_view text, int world_size = 0);
/// "pp=2 dp_replicate=1 dp_shard=2 cp=1 tp=2"
std::string describe(const Mesh& mesh, View view = View::dense);

/// A rank's coordinates along the dense axes that have several ranks, as in "dp_shard 1, tp 0"; may be empty.
std::string describe_rank(const Mesh& mesh, int rank);

/// One per axis of the view.
using Coordinates = std::vector<int>;
Coordinates coordinates(const Mesh& mesh, int rank, View view = View::dense);            ///< coordinates of a rank
int rank_at(const Mesh& mesh, const Coordinates& coordinates, View view = View::dense);  ///< the inverse

/// Returns the group over `axes` that contains `rank`: the ranks that share its coordinates along all other axes,
/// ascending. All axes must belong to one view (pp belongs to both). Throws InputError otherwise.
std::vector<int> group_of(const Mesh& mesh, int rank, std::span<const Axis> axes);
/// All groups over `axes`, in order of their first rank: a partition of the world.
std::vector<std::vector<int>> all_groups(const Mesh& mesh, std::span<const Axis> axes);

/// Groups of ranks with the same part of all non-expert parameters (tp) that together hold one copy of the experts
/// (edp): one rank of each tp group among the ep x etp ranks of that copy; with `stages`, joined over all pipeline
/// stages. If etp equals tp, these are the groups over ep. Throws Error unless ep x etp is a multiple of tp.
std::vector<std::vector<int>> groups_beside_experts(const Mesh& mesh, bool stages);

/// The ranks of the first and the last stage of `rank`'s pipeline, which sum the gradients of tied embeddings. One rank
/// if there is one stage.
std::vector<int> embedding_group(const Mesh& mesh, int rank);

/// A set of axes over which a part of training communicates.
struct NamedAxes {
  std::string_view name;     ///< its name for parse_axes()
  std::vector<Axis> axes;    ///< all from one view
  std::string_view purpose;  ///< data communicated over the axes
};
const std::vector<NamedAxes>& named_axes();  ///< the table of named sets
/// Parses a name of that table, or axes joined by '-': "dp-cp". Throws InputError for others (with the nearest one).
std::vector<Axis> parse_axes(std::string_view text);

/// Explains why the mesh is slow on hosts of `ranks_per_host` consecutive ranks, and suggests faster sizes; empty if it
/// is not slow. Ranks of tp (and etp) exchange activations several times per layer, so each of their groups should be
/// within one host.
std::string placement_problem(const Mesh& mesh, int ranks_per_host);

}  // namespace tessera::layout
