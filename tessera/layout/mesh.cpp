#include <tessera/layout/mesh.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

#include <algorithm>
#include <map>
#include <utility>

namespace tessera::layout {
namespace {

std::size_t place_of(Axis axis) { return static_cast<std::size_t>(axis); }

std::string describe(const MeshSizes& m) {
  std::vector<std::string> parts;
  for (const Axis axis : dense_axes) parts.push_back(concat(axis_name(axis), "=", m.sizes[place_of(axis)]));
  if (m.ep != 1 || m.etp != 0) parts.push_back(concat("ep=", m.ep));
  if (m.etp != 0) parts.push_back(concat("etp=", m.etp));
  return join(parts, " ");
}

/// Product of the sizes, counting a zero as one. Throws InputError if it does not fit into an int.
int product_of(const MeshSizes& m) {
  int product = 1;
  for (const int size : m.sizes)
    if (size != 0 && __builtin_mul_overflow(product, size, &product))
      throw InputError(concat("mesh ", describe(m), ": the product of the sizes does not fit into an int"));
  return product;
}

std::string divisors_text(int number) {
  std::vector<std::string> parts;
  for (int d = 1; d <= number && parts.size() < 16; ++d)
    if (number % d == 0) parts.push_back(std::to_string(d));
  return join(parts, ", ");
}

View view_of(std::span<const Axis> axes) {
  bool dense = false, expert = false;
  for (const Axis axis : axes) {
    const bool of_experts = axis == Axis::edp || axis == Axis::ep || axis == Axis::etp;
    (of_experts ? expert : dense) |= axis != Axis::pp;
  }
  if (dense && expert) {
    std::vector<std::string> names;
    for (const Axis axis : axes) names.emplace_back(axis_name(axis));
    throw InputError(concat("the axes ", join(names, "-"),
                            " belong to different views of the ranks: a group needs axes of pp, ",
                            "dp_replicate, dp_shard, cp, tp, or of pp, edp, ep, etp"));
  }
  return expert ? View::expert : View::dense;
}

/// The rank with coordinates `at` in a grid of `sizes`: the last coordinate varies fastest.
int row_major(std::span<const int> sizes, std::span<const int> at) {
  int index = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) index = index * sizes[i] + at[i];
  return index;
}

std::vector<int> sizes_of(const Mesh& mesh, View view) {
  std::vector<int> sizes;
  for (const Axis axis : axes_of(view)) sizes.push_back(mesh.size(axis));
  return sizes;
}

}  // namespace

std::span<const Axis> axes_of(View view) {
  if (view == View::dense) return dense_axes;
  return expert_axes;
}

std::string_view axis_name(Axis axis) {
  constexpr std::array<std::string_view, 8> names = {"pp", "dp_replicate", "dp_shard", "cp", "tp", "edp", "ep", "etp"};
  return names.at(place_of(axis));
}

int Mesh::world_size() const { return product_of({.sizes = sizes}); }

int Mesh::size(Axis axis) const {
  switch (axis) {
    case Axis::ep:
      return ep;
    case Axis::etp:
      return etp;
    case Axis::edp:
      return world_size() / (size(Axis::pp) * ep * etp);
    default:
      return sizes[place_of(axis)];
  }
}

Mesh make_mesh(const MeshSizes& given, int world_size) {
  if (world_size < 1) throw InputError(concat("the world size must be at least 1, not ", world_size));
  MeshSizes m = given;
  const auto refuse = [&](const auto&... why) { throw InputError(concat("mesh ", describe(given), ": ", why...)); };
  int* open = nullptr;
  for (const Axis axis : dense_axes) {
    int& size = m.sizes[place_of(axis)];
    if (size < 0) refuse("the size of ", axis_name(axis), " must be positive, or 0 to derive it from the world size");
    if (size != 0) continue;
    if (open != nullptr) refuse("at most one size may be 0 (derived from the world size)");
    open = &size;
  }
  const int product = product_of(m);
  if (open != nullptr) {
    if (world_size % product != 0)
      refuse("the given sizes multiply to ", product, ", which does not divide the world size ", world_size);
    *open = world_size / product;
  } else if (product != world_size) {
    for (const Axis axis : dense_axes)
      if (const int size = m.sizes[place_of(axis)]; world_size % size != 0)
        refuse(axis_name(axis), "=", size, " does not divide the ", world_size, " ranks (the sizes need ", product,
               "); it may be ", divisors_text(world_size));
    const int others = product / m.sizes[place_of(Axis::dp_shard)];
    throw InputError(concat("mesh ", describe(given), " needs ", product, " ranks, but the world size is ", world_size,
                            "; start that many processes",
                            world_size % others == 0 ? concat(", or make dp_shard ", world_size / others) : "",
                            ", or leave one size 0 to derive it"));
  }
  if (m.ep < 1 || m.etp < 0) refuse("ep must be positive, and etp positive or 0 (as tp)");
  const Mesh mesh{m.sizes, m.ep, m.etp == 0 ? m.sizes[place_of(Axis::tp)] : m.etp};
  const int stage = world_size / mesh.size(Axis::pp);
  if (mesh.etp > stage || stage % mesh.etp != 0)
    refuse("etp=", mesh.etp, " does not divide the ", stage, " ranks of a pipeline stage; it may be ",
           divisors_text(stage));
  if (mesh.ep > stage / mesh.etp || stage / mesh.etp % mesh.ep != 0)
    refuse("ep=", mesh.ep, " x etp=", mesh.etp, " does not divide the ", stage,
           " ranks of a pipeline stage; with etp=", mesh.etp, " ep may be ", divisors_text(stage / mesh.etp),
           stage % mesh.ep == 0 ? concat(", with ep=", mesh.ep, " etp may be ", divisors_text(stage / mesh.ep)) : "");
  return mesh;
}

Mesh parse_mesh(std::string_view text, int world_size) {
  MeshSizes sizes;
  std::vector<std::string> names;
  for (const Axis axis : dense_axes) names.emplace_back(axis_name(axis));
  names.insert(names.end(), {"dp", "ep", "etp"});
  std::vector<std::string> seen;
  for (const std::string& item : split(text, ',')) {
    const auto refuse = [&](const auto&... why) { throw InputError(concat("mesh '", text, "': ", why...)); };
    const std::size_t equals = item.find('=');
    std::string name = trim(item.substr(0, equals));
    if (equals == std::string::npos)
      refuse("'", trim(item), "' is not AXIS=SIZE, as in pp=2,dp=2,tp=2; the axes are ", join(names));
    if (name == "edp") refuse("edp is derived from the others: world size / (pp x ep x etp)");
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      const auto near = nearest(name, names);
      refuse("unknown axis '", name, "'; ",
             near ? concat("did you mean ", *near, "?") : concat("the axes are ", join(names)));
    }
    if (name == "dp") name = "dp_shard";
    if (std::find(seen.begin(), seen.end(), name) != seen.end()) refuse("the size of ", name, " is given twice");
    seen.push_back(name);
    const std::string number = trim(item.substr(equals + 1));
    const auto size = parse_int(number);
    if (!size || *size < -1 || *size > 1 << 30)
      refuse(name, "=", number, ": a size must be a whole number, or 0 to derive it");
    const int value = *size == -1 ? 0 : static_cast<int>(*size);
    if (name == "ep") {
      sizes.ep = value;
    } else if (name == "etp") {
      sizes.etp = value;
    } else {
      const auto axis =
          std::find_if(dense_axes.begin(), dense_axes.end(), [&](Axis a) { return axis_name(a) == name; });
      sizes.sizes[place_of(*axis)] = value;
      if (value == 0 && world_size == 0)
        refuse(name, " is derived, which requires the number of ranks (--world_size N)");
    }
  }
  return make_mesh(sizes, world_size == 0 ? product_of(sizes) : world_size);
}

std::string describe(const Mesh& mesh, View view) {
  std::vector<std::string> parts;
  for (const Axis axis : axes_of(view)) parts.push_back(concat(axis_name(axis), "=", mesh.size(axis)));
  return join(parts, " ");
}

std::string describe_rank(const Mesh& mesh, int rank) {
  const Coordinates at = coordinates(mesh, rank);
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < dense_axes.size(); ++i)
    if (mesh.sizes[i] > 1) parts.push_back(concat(axis_name(dense_axes[i]), " ", at[i]));
  return join(parts, ", ");
}

Coordinates coordinates(const Mesh& mesh, int rank, View view) {
  const int world_size = mesh.world_size();
  TESSERA_CHECK(rank >= 0 && rank < world_size, "rank ", rank, " is outside a world of ", world_size);
  Coordinates result = sizes_of(mesh, view);
  for (std::size_t axis = result.size(); axis-- > 0;) {  // the innermost axis varies fastest
    const int size = result[axis];
    result[axis] = rank % size;
    rank /= size;
  }
  return result;
}

int rank_at(const Mesh& mesh, const Coordinates& coordinates, View view) {
  const std::span<const Axis> axes = axes_of(view);
  TESSERA_CHECK(coordinates.size() == axes.size(), coordinates.size(), " coordinates for ", axes.size(), " axes");
  for (std::size_t i = 0; i < axes.size(); ++i)
    TESSERA_CHECK(coordinates[i] >= 0 && coordinates[i] < mesh.size(axes[i]), "coordinate ", coordinates[i], " on ",
                  axis_name(axes[i]), " is outside its size ", mesh.size(axes[i]));
  return row_major(sizes_of(mesh, view), coordinates);
}

std::vector<int> group_of(const Mesh& mesh, int rank, std::span<const Axis> axes) {
  const View view = view_of(axes);
  const std::vector<int> sizes = sizes_of(mesh, view);
  Coordinates at = coordinates(mesh, rank, view);
  std::vector<std::size_t> varying;  // in mesh order, regardless of the order of `axes`, so that ranks ascend
  std::size_t count = 1;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    if (std::find(axes.begin(), axes.end(), axes_of(view)[i]) != axes.end()) {
      at[i] = 0;
      varying.push_back(i);
      count *= static_cast<std::size_t>(sizes[i]);
    }
  std::vector<int> group;
  while (group.size() < count) {
    group.push_back(row_major(sizes, at));
    for (std::size_t v = varying.size(); v-- > 0;) {  // counts up, the innermost axis first
      if (++at[varying[v]] < sizes[varying[v]]) break;
      at[varying[v]] = 0;
    }
  }
  return group;
}

std::vector<std::vector<int>> all_groups(const Mesh& mesh, std::span<const Axis> axes) {
  std::vector<std::vector<int>> groups;
  std::vector<bool> placed(static_cast<std::size_t>(mesh.world_size()));
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    if (placed[static_cast<std::size_t>(rank)]) continue;
    groups.push_back(group_of(mesh, rank, axes));
    for (const int member : groups.back()) placed[static_cast<std::size_t>(member)] = true;
  }
  return groups;
}

std::vector<std::vector<int>> groups_beside_experts(const Mesh& mesh, bool stages) {
  TESSERA_CHECK(mesh.ep * mesh.etp % mesh.size(Axis::tp) == 0, "ep x etp = ", mesh.ep * mesh.etp,
                " is not a multiple of tp = ", mesh.size(Axis::tp));
  std::map<std::array<int, 3>, std::vector<int>> groups;
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    const Coordinates dense = coordinates(mesh, rank), expert = coordinates(mesh, rank, View::expert);
    groups[{stages ? 0 : dense.front(), expert[1], dense.back()}].push_back(rank);  // pp, edp, tp
  }
  std::vector<std::vector<int>> lists;
  for (auto& [place, ranks] : groups) lists.push_back(std::move(ranks));
  std::sort(lists.begin(), lists.end());
  return lists;
}

std::vector<int> embedding_group(const Mesh& mesh, int rank) {
  constexpr std::array<Axis, 1> pipeline = {Axis::pp};
  const std::vector<int> stages = group_of(mesh, rank, pipeline);
  if (stages.size() == 1) return stages;
  return {stages.front(), stages.back()};
}

const std::vector<NamedAxes>& named_axes() {
  using enum Axis;
  static const std::vector<NamedAxes> table = {
      {"world", {pp, dp_replicate, dp_shard, cp, tp}, "agreement, start and end"},
      {"pp", {pp}, "activations and their gradients, from stage to stage"},
      {"dp", {dp_replicate, dp_shard}, "ranks with different data"},
      {"dp_replicate", {dp_replicate}, "gradients of replicas"},
      {"dp_shard", {dp_shard}, "shards, where sequences are whole (cp = 1)"},
      {"fsdp", {dp_shard, cp}, "parameters, gradients and states in shards"},
      {"cp", {cp}, "keys and values of other parts of a sequence"},
      {"tp", {tp}, "activations, several times per layer"},
      {"loss", {dp_replicate, dp_shard, cp}, "loss and gradients, by the count of scored tokens"},
      {"model", {pp, tp}, "one copy of the model: gradient norms"},
      {"edp", {edp}, "gradients and shards of experts"},
      {"ep", {ep}, "tokens exchanged with experts"},
      {"etp", {etp}, "activations within an expert"},
  };
  return table;
}

std::vector<Axis> parse_axes(std::string_view text) {
  std::vector<Axis> axes;
  std::vector<std::string> names;
  for (const NamedAxes& row : named_axes()) {
    if (row.name == text) return row.axes;
    names.emplace_back(row.name);
  }
  for (const std::string& name : split(text, '-')) {
    const auto row = std::find_if(named_axes().begin(), named_axes().end(),
                                  [&](const NamedAxes& candidate) { return candidate.name == name; });
    if (row == named_axes().end()) {
      const auto near = nearest(name, names);
      throw InputError(concat("group '", text, "': unknown axis '", name, "'; ",
                              near ? concat("did you mean ", *near, "?") : concat("the axes are ", join(names))));
    }
    for (const Axis axis : row->axes)
      if (std::find(axes.begin(), axes.end(), axis) == axes.end()) axes.push_back(axis);
  }
  view_of(axes);
  return axes;
}

std::string placement_problem(const Mesh& mesh, int ranks_per_host) {
  if (ranks_per_host < 1) throw InputError(concat("a host must have at least 1 rank, not ", ranks_per_host));
  if (mesh.world_size() <= ranks_per_host) return "";
  for (const Axis axis : {Axis::tp, Axis::etp}) {
    const int size = mesh.size(axis);
    if (ranks_per_host % size == 0) continue;
    const std::array<Axis, 1> axes = {axis};
    for (const std::vector<int>& group : all_groups(mesh, axes)) {
      if (group.front() / ranks_per_host == group.back() / ranks_per_host) continue;
      std::vector<std::string> ranks;
      for (const int rank : group) ranks.push_back(std::to_string(rank));
      return concat(axis_name(axis), "=", size, " does not divide the ", ranks_per_host, " ranks of a host: group [",
                    join(ranks, " "), "] spans hosts ", group.front() / ranks_per_host, " and ",
                    group.back() / ranks_per_host, ", whose network would carry activations several times per layer; ",
                    axis_name(axis), " may be ", divisors_text(ranks_per_host));
    }
  }
  return "";
}

}  // namespace tessera::layout
