#include <tessera/layout/mesh.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <algorithm>

namespace tessera::layout {

namespace {

/// "pp=2 dp_replicate=1 ..." for messages.
std::string describe(const std::array<int, 5>& sizes) {
  std::vector<std::string> parts;
  for (Axis axis : all_axes) parts.push_back(concat(axis_name(axis), "=", sizes[static_cast<std::size_t>(axis)]));
  return join(parts, " ");
}

/// Product of the sizes, counting a zero as one. Throws InputError when it does not fit an int.
int product_of(const std::array<int, 5>& sizes) {
  int product = 1;
  for (int size : sizes) {
    if (size != 0 && __builtin_mul_overflow(product, size, &product)) {
      throw InputError(concat("mesh ", describe(sizes), ": the product of the sizes does not fit an int"));
    }
  }
  return product;
}

}  // namespace

std::string_view axis_name(Axis axis) {
  switch (axis) {
    case Axis::pp:
      return "pp";
    case Axis::dp_replicate:
      return "dp_replicate";
    case Axis::dp_shard:
      return "dp_shard";
    case Axis::cp:
      return "cp";
    case Axis::tp:
      return "tp";
  }
  throw Error(concat("unknown mesh axis ", static_cast<int>(axis)));
}

int Mesh::world_size() const { return product_of(sizes); }

Mesh make_mesh(std::array<int, 5> sizes, int world_size) {
  if (world_size < 1) throw InputError(concat("the world size must be at least 1, not ", world_size));
  int* open = nullptr;
  for (Axis axis : all_axes) {
    int& size = sizes[static_cast<std::size_t>(axis)];
    if (size < 0) {
      throw InputError(concat("mesh ", describe(sizes), ": the size of ", axis_name(axis),
                              " must be positive, or 0 to derive it from the world size"));
    }
    if (size != 0) continue;
    if (open != nullptr) {
      throw InputError(concat("mesh ", describe(sizes), ": at most one size may be 0 (derived from the world size)"));
    }
    open = &size;
  }
  const int given = product_of(sizes);
  if (open != nullptr) {
    if (world_size % given != 0) {
      throw InputError(concat("mesh ", describe(sizes), ": the given sizes multiply to ", given,
                              ", which does not divide the world size ", world_size));
    }
    *open = world_size / given;
  } else if (given != world_size) {
    throw InputError(concat("mesh ", describe(sizes), " needs ", given, " ranks, but the world size is ", world_size,
                            "; start that many processes, or leave one size 0 to derive it"));
  }
  return Mesh{sizes};
}

std::array<int, 5> coordinates(const Mesh& mesh, int rank) {
  const int world_size = mesh.world_size();
  TESSERA_CHECK(rank >= 0 && rank < world_size, "rank ", rank, " is outside a world of ", world_size);
  std::array<int, 5> result{};
  for (std::size_t axis = mesh.sizes.size(); axis-- > 0;) {  // innermost axis varies fastest
    result[axis] = rank % mesh.sizes[axis];
    rank /= mesh.sizes[axis];
  }
  return result;
}

int rank_at(const Mesh& mesh, const std::array<int, 5>& coordinates) {
  int rank = 0;
  for (Axis axis : all_axes) {
    const int at = coordinates[static_cast<std::size_t>(axis)];
    TESSERA_CHECK(at >= 0 && at < mesh.size(axis), "coordinate ", at, " on ", axis_name(axis), " is outside its size ",
                  mesh.size(axis));
    rank = rank * mesh.size(axis) + at;
  }
  return rank;
}

std::vector<int> group_of(const Mesh& mesh, int rank, std::span<const Axis> axes) {
  std::array<int, 5> origin = coordinates(mesh, rank);
  std::array<int, 5> extent = {1, 1, 1, 1, 1};
  for (Axis axis : axes) {
    origin[static_cast<std::size_t>(axis)] = 0;
    extent[static_cast<std::size_t>(axis)] = mesh.size(axis);
  }
  // Walking the axes in the order of the mesh makes the ranks ascend, whatever order `axes` names them in.
  const Mesh inside{extent};
  std::vector<int> group(static_cast<std::size_t>(inside.world_size()));
  for (std::size_t i = 0; i < group.size(); ++i) {
    std::array<int, 5> at = coordinates(inside, static_cast<int>(i));
    for (std::size_t axis = 0; axis < at.size(); ++axis) at[axis] += origin[axis];
    group[i] = rank_at(mesh, at);
  }
  return group;
}

std::vector<std::vector<int>> all_groups(const Mesh& mesh, std::span<const Axis> axes) {
  std::vector<std::vector<int>> groups;
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    std::vector<int> group = group_of(mesh, rank, axes);
    if (group.front() == rank) groups.push_back(std::move(group));  // named by its first rank: each group once
  }
  return groups;
}

}  // namespace tessera::layout
