#pragma once
/// \file
/// The way of one flat gradient over the ranks: a row of stages, chosen by the groups that the gradient belongs to.
///
///   whole gradients    all_reduce over all ranks
///   shards             reduce_scatter over the shard group, then all_reduce over the copies of the shard (HSDP)
///   shared beyond      behind these, all_reduce over ranks outside that hold the same parameters (what is no expert)
///   fixed order        accumulate: x_0, x_1, ... are added to the running sum in the order of the ranks; with ranks
///                      beyond, those of the first of these, then those of the second, ...
///
/// What is done to the numbers for the wire's sake, and undone after it, is done here and nowhere else: the division
/// before and the multiplication after (gradient_predivide_factor), compression, the mean.

#include <tessera/comm/group.h>
#include <tessera/nn/moe/source_gradients.h>
#include <tessera/parallel/compression/compression.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tessera::parallel {

/// The groups of one flat gradient. `shards`: the ranks that hold its parts (one rank: it stays whole); `copies`: those
/// that hold the same part; `all`: both. `expert_replicas`: ranks of other groups that hold the same part; empty: none.
/// `per_source`: in fixed order, gradients of parts that such ranks do not hold, kept by the rank they come from.
struct GradientGroups {
  comm::Group all, shards, copies, expert_replicas = {};
  c10::intrusive_ptr<nn::SourceGradients> per_source = {};
};

struct ReductionOptions {
  comm::Reduction reduction = comm::Reduction::mean;  ///< mean or sum
  double predivide_factor = 1;      ///< f: divided by f before, multiplied by f after; not in fixed order
  std::int64_t logical_shards = 0;  ///< V > 0: fixed order; a mean is divided by V before
  std::shared_ptr<Compression> compression = nullptr;  ///< not in fixed order

  bool fixed_order() const { return logical_shards > 0; }
};

/// What passes. Scattered: `flat` [S n] is this rank's, `result` [n] receives the reduced part. Not scattered: `flat`
/// itself receives the result, and `message` is the memory of flat with counters behind it, which pass along.
struct GradientMessage {
  std::string key;  ///< key of error feedback: the same in every step and on every rank
  std::string tag;  ///< tag of the collectives
  at::Tensor flat, message, result;
  at::Tensor sum;  ///< fixed order: laid out like result (or message); what there is so far, and the result
  /// Fixed order: laid out like flat (or message), gradients of the sources that follow (GradientGroups).
  std::vector<at::Tensor> later_source = {};
  const std::vector<CompressedSegment>* segments = nullptr;
  bool scattered() const { return !message.defined(); }
};

class GradientReduction {
 public:
  /// Starts the first stage. Collective, as everything here. `flat` is overwritten.
  void start(const ReductionOptions& options, const GradientGroups& groups, GradientMessage passing);
  /// Waits for the stage under way and starts the next one, if there is one.
  void advance();
  /// The result is there. Waits.
  void finish();

 private:
  enum class Stage { all_reduce, reduce_scatter, accumulate, expert_replicas };

  void run(Stage stage);
  void accumulate();
  comm::Work add_to_sum(const at::Tensor& flat_or_message);
  void wait();
  comm::Reduction reduction() const;

  ReductionOptions options_;
  GradientGroups groups_;
  GradientMessage message_;
  std::vector<Stage> stages_;  ///< those to come
  comm::Work work_, counters_;
  bool under_way_ = false;
};

}  // namespace tessera::parallel
