#pragma once
/// \file
/// What the generators write their lists with.

#include <tessera/layout/schedule/generators.h>

#include <vector>

namespace tessera::layout::schedule {

/// The actions of one rank under construction: each F, I, W and B takes the next micro-batch of its stage. Those from
/// `micro_batches` on are left out: what is left of a schedule for more micro-batches is one for fewer, since no
/// micro-batch depends on another.
class RankList {
 public:
  explicit RankList(const Shape& shape)
      : next_(static_cast<std::size_t>(shape.stages_per_rank)),
        ranks_(shape.ranks),
        micro_batches_(shape.micro_batches) {}

  void forward(int stage) { add(Kind::forward, stage, next_of(stage).forward++); }
  /// B, of which I and W are parts.
  void backward(int stage) {
    Next& next = next_of(stage);
    ++next.weight_gradient;
    add(Kind::backward, stage, next.backward++);
  }
  void input_gradient(int stage) { add(Kind::input_gradient, stage, next_of(stage).backward++); }
  void weight_gradient(int stage) { add(Kind::weight_gradient, stage, next_of(stage).weight_gradient++); }
  /// F and B as one.
  void overlapped(int forward_stage, int backward_stage) {
    const std::size_t before = actions_.size();
    forward(forward_stage);
    backward(backward_stage);
    if (actions_.size() == before + 2) actions_[before].with_next = true;
  }

  /// How many F, or how many I and B, there were of a stage.
  int forwards(int stage) const { return next_[chunk_of(stage)].forward; }
  int backwards(int stage) const { return next_[chunk_of(stage)].backward; }
  int weight_gradients(int stage) const { return next_[chunk_of(stage)].weight_gradient; }

  std::vector<Action> take() { return std::move(actions_); }

 private:
  struct Next {
    int forward = 0, backward = 0, weight_gradient = 0;
  };
  /// Under either placement a rank has one of each p stages that follow each other.
  std::size_t chunk_of(int stage) const { return static_cast<std::size_t>(stage / ranks_); }
  Next& next_of(int stage) { return next_[chunk_of(stage)]; }
  void add(Kind kind, int stage, int micro_batch) {
    if (micro_batch < micro_batches_) actions_.push_back({kind, false, stage, micro_batch});
  }

  std::vector<Next> next_;
  int ranks_, micro_batches_;
  std::vector<Action> actions_;
};

/// Throws InputError when a number of the shape is below 1, or when the generator would go through more than 2^28 / 3
/// computations of p ranks, v stages and `through` micro-batches. A generator that fills its pipeline with
/// micro-batches that RankList leaves out says so before made(), which goes by m.
void check_size(const char* name, const Shape& shape, std::int64_t through);
/// Throws as check_size() for m, and when v is not between `least` and `most` stages per rank.
void check_shape(const char* name, const Shape& shape, int least, int most);

/// A schedule whose rank r has the list that `fill(list, r)` makes. Throws as check_shape().
template <class Fill>
Schedule made(const char* name, const Shape& shape, Placement placement, int least, int most, Fill fill) {
  check_shape(name, shape, least, most);
  Schedule schedule{name, shape.micro_batches, place_stages(placement, shape.ranks, shape.stages_per_rank), {}};
  for (int rank = 0; rank < shape.ranks; ++rank) {
    RankList list(shape);
    fill(list, rank);
    schedule.ranks.push_back(list.take());
  }
  return schedule;
}

/// Interleaved schedules: how many micro-batches go through a stage together, group by group.
std::vector<int> group_sizes(const Shape& shape);
/// The stages of a rank in the order in which an interleaved schedule goes through them, one per micro-batch: in groups
/// of micro-batches, forwards from the first stage of the rank to the last, backwards from the last to the first.
std::vector<int> interleaved_stages(const Shape& shape, int rank, bool backwards);

}  // namespace tessera::layout::schedule
