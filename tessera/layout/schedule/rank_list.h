#pragma once
/// \file
/// Helper for the generators to build their lists.

#include <tessera/layout/schedule/generators.h>

#include <vector>

namespace tessera::layout::schedule {

/// The actions of one rank under construction: each F, I, W and B takes the next micro-batch of its stage.
/// Micro-batches from `micro_batches` on are dropped: truncating a schedule for more micro-batches gives a valid one,
/// because micro-batches do not depend on each other.
class RankList {
 public:
  explicit RankList(const Shape& shape)
      : next_(static_cast<std::size_t>(shape.stages_per_rank)),
        ranks_(shape.ranks),
        micro_batches_(shape.micro_batches) {}

  void forward(int stage) { add(Kind::forward, stage, next_of(stage).forward++); }
  /// B, which combines I and W.
  void backward(int stage) {
    Next& next = next_of(stage);
    ++next.weight_gradient;
    add(Kind::backward, stage, next.backward++);
  }
  void input_gradient(int stage) { add(Kind::input_gradient, stage, next_of(stage).backward++); }
  void weight_gradient(int stage) { add(Kind::weight_gradient, stage, next_of(stage).weight_gradient++); }
  /// F and B, overlapped.
  void overlapped(int forward_stage, int backward_stage) {
    const std::size_t before = actions_.size();
    forward(forward_stage);
    backward(backward_stage);
    if (actions_.size() == before + 2) actions_[before].with_next = true;
  }

  /// Numbers of F, of I and B, and of W and B added for a stage.
  int forwards(int stage) const { return next_[chunk_of(stage)].forward; }
  int backwards(int stage) const { return next_[chunk_of(stage)].backward; }
  int weight_gradients(int stage) const { return next_[chunk_of(stage)].weight_gradient; }

  std::vector<Action> take() { return std::move(actions_); }

 private:
  struct Next {
    int forward = 0, backward = 0, weight_gradient = 0;
  };
  /// In both placements, a rank has one of every p consecutive stages.
  std::size_t chunk_of(int stage) const { return static_cast<std::size_t>(stage / ranks_); }
  Next& next_of(int stage) { return next_[chunk_of(stage)]; }
  void add(Kind kind, int stage, int micro_batch) {
    if (micro_batch < micro_batches_) actions_.push_back({kind, false, stage, micro_batch});
  }

  std::vector<Next> next_;
  int ranks_, micro_batches_;
  std::vector<Action> actions_;
};

/// Throws InputError if a number of the shape is below 1, or the generator would produce more than 2^28 / 3
/// computations for p ranks, v stages and `through` micro-batches. A generator that fills its pipeline with extra
/// micro-batches, which RankList drops, calls this function before made(), which checks only m.
void check_size(const char* name, const Shape& shape, std::int64_t through);
/// Throws like check_size() for m, and if v is not between `least` and `most` stages per rank.
void check_shape(const char* name, const Shape& shape, int least, int most);

/// Builds a schedule in which `fill(list, r)` fills the list of rank r. Throws like check_shape().
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

/// Interleaved schedules: sizes of the groups of micro-batches that pass a stage together.
std::vector<int> group_sizes(const Shape& shape);
/// The stages of a rank in the order in which an interleaved schedule runs them, one entry per micro-batch: in groups
/// of micro-batches, forwards from the rank's first stage to its last, backwards from the last to the first.
std::vector<int> interleaved_stages(const Shape& shape, int rank, bool backwards);

}  // namespace tessera::layout::schedule
