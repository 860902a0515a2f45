#include <tessera/layout/schedule/generators.h>

#include <algorithm>

#include <tessera/base/error.h>
#include <tessera/layout/schedule/rank_list.h>

namespace tessera::layout::schedule {
namespace {

constexpr int any_number = 1 << 20;

}  // namespace

void check_size(const char* name, const Shape& shape, std::int64_t through) {
  if (shape.ranks < 1 || shape.micro_batches < 1 || shape.stages_per_rank < 1)
    throw InputError(concat("schedule ", name, ": ", shape.ranks, " ranks, ", shape.stages_per_rank,
                            " stages per rank, ", shape.micro_batches, " micro-batches: each must be at least 1"));
  constexpr std::int64_t most = (std::int64_t{1} << 28) / 3;
  if (through <= most / shape.ranks / shape.stages_per_rank) return;  // division, since products overflow
  throw InputError(concat(
      "schedule ", name, ": ", shape.ranks, " ranks x ", shape.stages_per_rank, " stages x ", through, " micro-batches",
      through > shape.micro_batches
          ? concat(" (needed to fill the pipeline; those from ", shape.micro_batches, " on are dropped)")
          : "",
      " exceed the ", most, " computations of the largest schedule"));
}

void check_shape(const char* name, const Shape& shape, int least, int most) {
  check_size(name, shape, shape.micro_batches);
  const int v = shape.stages_per_rank;
  if (v < least || v > most)
    throw InputError(concat("schedule ", name, ": ", v, v == 1 ? " stage" : " stages", " per rank; it needs ",
                            least == most ? concat("exactly ", least)
                            : v < least   ? concat("at least ", least)
                                          : concat("at most ", most),
                            v < least ? ", otherwise use 1f1b" : "", ": the nearest is ", v < least ? least : most));
  if (shape.group_size == 0) return;
  const int smallest = std::min(shape.ranks, shape.micro_batches);
  if (shape.group_size < smallest || shape.group_size > shape.micro_batches)
    throw InputError(concat("schedule ", name, ": groups of ", shape.group_size, " micro-batches; with ", shape.ranks,
                            " ranks and ", shape.micro_batches, " micro-batches from ", smallest, " to ",
                            shape.micro_batches, " can pass a stage together: the nearest is ",
                            std::clamp(shape.group_size, smallest, shape.micro_batches)));
}

std::vector<int> group_sizes(const Shape& shape) {
  std::vector<int> sizes;
  if (shape.group_size > 0) {
    // The last group is padded with micro-batches that RankList drops, because a short group may deadlock.
    sizes.assign(static_cast<std::size_t>((shape.micro_batches + shape.group_size - 1) / shape.group_size),
                 shape.group_size);
  } else {
    const int groups = std::max(1, shape.micro_batches / shape.ranks);
    for (int i = 0; i < groups; ++i)
      sizes.push_back(shape.micro_batches / groups + (i < shape.micro_batches % groups ? 1 : 0));
  }
  return sizes;
}

std::vector<int> interleaved_stages(const Shape& shape, int rank, bool backwards) {
  std::vector<int> order;
  for (const int size : group_sizes(shape))
    for (int chunk = 0; chunk < shape.stages_per_rank; ++chunk)
      order.insert(order.end(), static_cast<std::size_t>(size),
                   (backwards ? shape.stages_per_rank - 1 - chunk : chunk) * shape.ranks + rank);
  return order;
}

Schedule gpipe(const Shape& shape) {
  return made("gpipe", shape, Placement::loop, 1, 1, [&](RankList& list, int rank) {
    for (int i = 0; i < shape.micro_batches; ++i) list.forward(rank);
    for (int i = 0; i < shape.micro_batches; ++i) list.backward(rank);
  });
}

Schedule one_forward_one_backward(const Shape& shape) {
  return made("1f1b", shape, Placement::loop, 1, 1, [&](RankList& list, int rank) {
    const int warm_up = std::min(shape.ranks - 1 - rank, shape.micro_batches);
    for (int i = 0; i < warm_up; ++i) list.forward(rank);
    for (int i = 0; i < shape.micro_batches; ++i) {
      list.forward(rank);
      list.backward(rank);
    }
  });
}

Schedule interleaved(const Shape& shape) {
  return made("interleaved_1f1b", shape, Placement::loop, 2, any_number, [&](RankList& list, int rank) {
    const auto forwards = interleaved_stages(shape, rank, false), backwards = interleaved_stages(shape, rank, true);
    const auto warm_up = std::min(forwards.size(), static_cast<std::size_t>(2 * (shape.ranks - 1 - rank)) +
                                                       static_cast<std::size_t>(shape.stages_per_rank - 1) *
                                                           static_cast<std::size_t>(group_sizes(shape).front()));
    for (std::size_t i = 0; i < warm_up; ++i) list.forward(forwards[i]);
    for (std::size_t i = 0; i < backwards.size(); ++i) {
      if (warm_up + i < forwards.size()) list.forward(forwards[warm_up + i]);
      list.backward(backwards[i]);
    }
  });
}

Schedule looped_breadth_first(const Shape& shape) {
  return made("looped_bfs", shape, Placement::loop, 1, any_number, [&](RankList& list, int rank) {
    for (int chunk = 0; chunk < shape.stages_per_rank; ++chunk)
      for (int i = 0; i < shape.micro_batches; ++i) list.forward(chunk * shape.ranks + rank);
    for (int chunk = shape.stages_per_rank - 1; chunk >= 0; --chunk)
      for (int i = 0; i < shape.micro_batches; ++i) list.backward(chunk * shape.ranks + rank);
  });
}

}  // namespace tessera::layout::schedule
