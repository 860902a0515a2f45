#include <tessera/layout/schedule/generators.h>

#include <algorithm>
#include <deque>

#include <tessera/layout/schedule/rank_list.h>

namespace tessera::layout::schedule {
namespace {

/// Number of micro-batches that a generator processes to fill the pipeline.
std::int64_t filled(const Shape& shape) {
  return std::max<std::int64_t>(shape.micro_batches, std::int64_t{2} * shape.ranks);
}

}  // namespace

Schedule zb_h1(const Shape& shape) {
  return made("zb_h1", shape, Placement::loop, 1, 1 << 20, [&](RankList& list, int rank) {
    const auto forwards = interleaved_stages(shape, rank, false), backwards = interleaved_stages(shape, rank, true);
    const auto late = std::min(backwards.size(), static_cast<std::size_t>(rank));
    const auto warm_up = std::min(forwards.size(), static_cast<std::size_t>(shape.ranks - 1 - rank) +
                                                       static_cast<std::size_t>(shape.stages_per_rank - 1) *
                                                           static_cast<std::size_t>(group_sizes(shape).front()));
    for (std::size_t i = 0; i < warm_up; ++i) list.forward(forwards[i]);
    for (std::size_t i = 0; i < backwards.size() + late; ++i) {
      if (warm_up + i < forwards.size()) list.forward(forwards[warm_up + i]);
      if (i < backwards.size()) list.input_gradient(backwards[i]);
      if (i >= late) list.weight_gradient(backwards[i - late]);
    }
  });
}

Schedule zb_h2(const Shape& shape) {
  check_size("zb_h2", shape, filled(shape));
  return made("zb_h2", shape, Placement::loop, 1, 1, [&](RankList& list, int rank) {
    const int warm_up = 2 * (shape.ranks - rank) - 1, late = 2 * rank;
    for (int i = 0; i < warm_up; ++i) list.forward(rank);
    for (int i = 0; i < shape.micro_batches + late; ++i) {
      list.input_gradient(rank);
      if (i >= late) list.weight_gradient(rank);
      list.forward(rank);
    }
  });
}

Schedule zbv(const Shape& shape) {
  check_size("zbv", shape, filled(shape));
  return made("zbv", shape, Placement::v, 2, 2, [&](RankList& list, int rank) {
    const int p = shape.ranks, there = rank, back = 2 * p - 1 - rank;
    const int all = std::max(shape.micro_batches, 2 * p - 1);  // fewer do not fill the pipeline
    const auto all_three = [&](int stage, bool forward) {
      if (forward) list.forward(stage);
      list.input_gradient(stage);
      list.weight_gradient(stage);
    };
    // Until the first micro-batch returns to this rank.
    for (int i = 0; i < 2 * (p - rank) - 1; ++i) list.forward(there);
    for (int i = 0; i < rank; ++i) {
      list.forward(back);
      list.forward(there);
    }
    for (int i = 0; i < p - rank; ++i) all_three(back, true);
    // Alternates F I W of one stage with F I W of the other.
    while (list.forwards(there) < all || list.forwards(back) < all) {
      all_three(there, list.forwards(there) < all);
      all_three(back, true);
    }
    // I comes first because other ranks wait for it; W fills the gap.
    for (int i = 0; i < rank; ++i) {
      list.input_gradient(there);
      list.input_gradient(back);
    }
    for (int i = 0; i < p - rank; ++i) {
      list.input_gradient(there);
      list.weight_gradient(there);
    }
    while (list.weight_gradients(back) < all) list.weight_gradient(back);
    while (list.weight_gradients(there) < all) list.weight_gradient(there);
  });
}

Schedule dualpipev(const Shape& shape) {
  check_size("dualpipev", shape, filled(shape));
  return made("dualpipev", shape, Placement::v, 2, 2, [&](RankList& list, int rank) {
    const int p = shape.ranks, there = rank, back = 2 * p - 1 - rank, before = p - 1 - rank;
    const int all = std::max(shape.micro_batches, 2 * p);
    std::deque<int> late;  // stages whose W is pending
    bool split = false;    // backward as I now, W later
    const auto backward = [&](int stage) {
      if (!split) return list.backward(stage);
      list.input_gradient(stage);
      late.push_back(stage);
    };
    const auto weight_gradient = [&] {
      if (late.empty()) return;
      list.weight_gradient(late.front());
      late.pop_front();
    };
    // Until the first micro-batch returns to this rank.
    for (int i = 0; i < 2 * before; ++i) list.forward(there);
    for (int i = 0; i < rank + 1; ++i) {
      list.forward(there);
      list.forward(back);
    }
    for (int i = 0; i < before; ++i) {
      list.input_gradient(back);
      list.weight_gradient(back);
      list.forward(back);
    }
    // Overlapped forward and backward, alternating between both stages.
    for (int i = 0; i < all - 2 * p + rank + 1; ++i) {
      if (i == 0 && rank == p - 1) {  // others wait for this forward, so the backward must not delay it
        list.forward(there);
        list.backward(back);
      } else {
        list.overlapped(there, back);
      }
      list.overlapped(back, there);
    }
    for (int i = 0; i < before; ++i) {
      list.backward(back);
      list.overlapped(back, there);
    }
    // Only backward; from the middle on only I, because other ranks wait for it. W fills the end.
    for (int i = 0; i < rank + 1; ++i) {
      if (i == (rank + 1) / 2 && rank % 2 == 1) split = true;
      backward(back);
      if (i == (rank + 1) / 2 && rank % 2 == 0) split = true;
      backward(there);
    }
    for (int i = 0; i < before; ++i) {
      weight_gradient();
      backward(there);
    }
    while (!late.empty()) weight_gradient();
  });
}

}  // namespace tessera::layout::schedule
