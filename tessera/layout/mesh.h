#pragma once
/// \file
/// layout/: axes, meshes, rank groups, flat layouts. This header: the one place where ranks are computed.
///
/// The ranks of a job are a grid; rank = row-major index, so the last axis varies fastest. There are two views of the
/// same ranks, which agree in pp only:
///
///   dense    pp, dp_replicate, dp_shard, cp, tp    what every layer but the experts uses
///   expert   pp, edp, ep, etp                      experts: ep ranks have different ones, etp cut each, edp copy them
///
/// The order is Megatron's ("tp-cp-ep-dp-pp", megatron/core/parallel_state.py, RankGenerator, which names the fastest
/// axis first) with dp in two parts, as torchtitan's (torchtitan/distributed/parallel_dims.py).

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::layout {

enum class Axis { pp, dp_replicate, dp_shard, cp, tp, edp, ep, etp };  ///< what travels along each: named_axes()
enum class View { dense, expert };                                     ///< the two grids of the same ranks

/// Outermost first.
inline constexpr std::array<Axis, 5> dense_axes = {Axis::pp, Axis::dp_replicate, Axis::dp_shard, Axis::cp, Axis::tp};
inline constexpr std::array<Axis, 4> expert_axes = {Axis::pp, Axis::edp, Axis::ep, Axis::etp};
std::span<const Axis> axes_of(View view);  ///< one of these two
std::string_view axis_name(Axis axis);     ///< "dp_shard" and so on

/// Sizes per axis, each >= 1. Made by make_mesh() or parse_mesh(), which check them.
struct Mesh {
  std::array<int, 5> sizes = {1, 1, 1, 1, 1};  ///< as dense_axes; their product is the world size
  int ep = 1, etp = 1;                         ///< pp * ep * etp divides the world size

  int world_size() const;     ///< the product of `sizes`
  int size(Axis axis) const;  ///< edp: what ep, etp and pp leave
};

/// As above, not yet checked. 0: to be derived.
struct MeshSizes {
  std::array<int, 5> sizes = {1, 1, 1, 1, 1};  ///< at most one may be 0: what the world size leaves
  int ep = 1, etp = 0;                         ///< etp 0: as tp
};

/// Throws InputError with the rule, the numbers and a choice that fits.
Mesh make_mesh(const MeshSizes& sizes, int world_size);

/// "pp=2,dp=2,tp=2": names of axes (dp is dp_shard; not edp, which follows), each once; a size of 0 or -1 is derived.
/// world_size 0: the product of the sizes. Throws InputError.
Mesh parse_mesh(std::string_view text, int world_size = 0);
/// "pp=2 dp_replicate=1 dp_shard=2 cp=1 tp=2"
std::string describe(const Mesh& mesh, View view = View::dense);

/// "dp_shard 1, tp 0": where a rank stands along the axes of the dense view that have several ranks; empty: there are
/// none.
std::string describe_rank(const Mesh& mesh, int rank);

/// One per axis of the view.
using Coordinates = std::vector<int>;
Coordinates coordinates(const Mesh& mesh, int rank, View view = View::dense);            ///< where a rank stands
int rank_at(const Mesh& mesh, const Coordinates& coordinates, View view = View::dense);  ///< and back

/// The ranks that share every coordinate of `rank` except along `axes`, ascending: the group over those axes. The axes
/// are of one view; pp is of both. Throws InputError otherwise.
std::vector<int> group_of(const Mesh& mesh, int rank, std::span<const Axis> axes);
/// All groups over `axes`, in order of their first rank: a partition of the world.
std::vector<std::vector<int>> all_groups(const Mesh& mesh, std::span<const Axis> axes);

/// Groups of ranks that hold the same part of everything but experts (tp), and together hold one copy of the experts
/// (edp): one rank of each tp group among the ep x etp ranks of that copy; with `stages` those of all stages of the
/// pipeline. Where etp is tp these are the groups over ep. ep x etp is a multiple of tp; throws Error otherwise.
std::vector<std::vector<int>> groups_beside_experts(const Mesh& mesh, bool stages);

/// The ranks with the first and the last stage of `rank`'s pipeline: tied embeddings have their gradients summed there.
/// One rank when there is one stage.
std::vector<int> embedding_group(const Mesh& mesh, int rank);

/// A set of axes that a part of training communicates over.
struct NamedAxes {
  std::string_view name;     ///< the word for them that parse_axes() takes
  std::vector<Axis> axes;    ///< all of one view
  std::string_view purpose;  ///< what travels there
};
const std::vector<NamedAxes>& named_axes();  ///< the table of them
/// A name of that table, or axes joined by '-': "dp-cp". Throws InputError for others, with the nearest.
std::vector<Axis> parse_axes(std::string_view text);

/// What is slow about the mesh on hosts of so many consecutive ranks, with choices that are not: ranks of tp (and etp)
/// exchange activations several times per layer, so their groups should lie within a host. Empty: nothing.
std::string placement_problem(const Mesh& mesh, int ranks_per_host);

}  // namespace tessera::layout
