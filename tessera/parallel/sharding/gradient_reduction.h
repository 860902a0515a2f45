#pragma once
/// \file
/// The reduction of one flat gradient: a sequence of stages, chosen by the groups that the gradient belongs to.
///
///   whole gradients    all_reduce over all ranks
///   shards             reduce_scatter over the shard group, then all_reduce over the shard's replicas (HSDP)
///   expert replicas    after these, non-expert gradients: all_reduce over the ranks with other experts
///   fixed order        accumulate: x_0, x_1, ... are added to the running sum in the order of the ranks; with expert
///                      replicas, first those of the first replica, then those of the second, ...
///
/// All changes to the numbers for the wire, and their reversal, are made here and nowhere else: the division before and
/// the multiplication after (gradient_predivide_factor), compression, the mean.

#include <tessera/comm/group.h>
#include <tessera/nn/moe/source_gradients.h>
#include <tessera/parallel/compression/compression.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tessera::parallel {

/// The groups of one flat gradient.
struct GradientGroups {
  comm::Group all;                   ///< the data-parallel ranks: shards x replicas
  comm::Group shards;                ///< the ranks that hold its parts; one rank: it stays whole
  comm::Group replicas;              ///< the ranks that hold the same part as this one (HSDP)
  comm::Group expert_replicas = {};  ///< ranks outside `all` that replicate these (non-expert) parameters; empty: none
  /// Fixed order, experts only: their gradients, kept separate per source rank until they are added in rank order.
  c10::intrusive_ptr<nn::SourceGradients> per_source = {};
};

struct ReductionOptions {
  comm::Reduction op = comm::Reduction::mean;  ///< mean or sum
  double predivide_factor = 1;      ///< gradients are divided by it before the sum, multiplied after; 1 in fixed order
  std::int64_t logical_shards = 0;  ///< V > 0: fixed order; a mean is divided by V before
  std::shared_ptr<Compression> compression = nullptr;  ///< null in fixed order

  bool fixed_order() const { return logical_shards > 0; }
};

/// One flat gradient to reduce. Scattered: `flat` [S n] is this rank's, `result` [n] receives the reduced part. Not
/// scattered: `flat` itself receives the result, and `message` is the memory of `flat` followed by counters, which are
/// reduced with it.
struct GradientMessage {
  std::string key;  ///< key of error feedback: the same in every step and on every rank
  std::string tag;  ///< tag of the collectives
  at::Tensor flat, message, result;
  at::Tensor sum;  ///< fixed order: laid out like result (or message); the running sum, and the result
  /// Fixed order: laid out like flat (or message), the gradients of sources 1, 2, ... (GradientGroups::per_source).
  std::vector<at::Tensor> later_sources = {};
  const std::vector<CompressedSegment>* segments = nullptr;
  bool scattered() const { return !message.defined(); }
};

class GradientReduction {
 public:
  /// Starts the first stage. Collective, like every function here. `flat` is overwritten.
  void start(const ReductionOptions& options, const GradientGroups& groups, GradientMessage message);
  /// Waits for the current stage and starts the next one, if any.
  void advance();
  /// Waits until the result is complete.
  void finish();

 private:
  enum class Stage { all_reduce, reduce_scatter, accumulate, expert_replicas };

  void run(Stage stage);
  void accumulate();
  comm::Work add_to_sum(const at::Tensor& flat_or_message);
  void wait();
  comm::Reduction wire_op() const;

  ReductionOptions options_;
  GradientGroups groups_;
  GradientMessage message_;
  std::vector<Stage> stages_;  ///< not started yet
  comm::Work work_;            ///< work of the current stage
  comm::Work counters_;        ///< for a compressed gradient, which is sent without its counters
  bool under_way_ = false;
};

}  // namespace tessera::parallel
