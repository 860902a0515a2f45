#pragma once
/// \file
/// A pipeline's batches on this rank: the executor, and the parts that tessera::PipelineParallel and `tessera train
/// --pp_size` share.

#include <tessera/parallel/pipeline/executor.h>
#include <tessera/parallel/pipeline/stage_gathers.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tessera::parallel {

/// Must not be moved, since the executor calls it. Not thread-safe.
class StageRunner {
 public:
  /// `last_rank`: the rank of the last stage. The constructor sets PipelineOptions::sharding.
  StageRunner(PipelineOptions options, int last_rank);

  /// After this call a stage's parameters stay whole from its first forward to its last backward in a batch
  /// (StageGathers).
  void gather_per_batch(Sharded& sharded, std::map<int, std::vector<std::string>> parameters);
  /// PipelineExecutor::run() of a schedule's computations, with gathers if gather_per_batch() was called. After an
  /// error, everything is released.
  std::vector<at::Tensor> run(const layout::schedule::Schedule& computations);
  /// The same for a schedule that ends in losses: returns the losses by micro-batch, on every rank.
  std::vector<double> losses_of(const layout::schedule::Schedule& computations);
  /// Origin of a NaN or an infinity of the last batch: "first in stage 1, micro-batch 2 (1F2), on rank 3"; "": no stage
  /// passed on such a value. Collective over `group`: this pipeline, or the job.
  std::string first_not_finite(const comm::Group& group) const;
  PipelineExecutor& executor() { return executor_; }

 private:
  comm::Group group_;
  int last_rank_;
  std::optional<StageGathers> gathers_;
  PipelineExecutor executor_;
};

/// Draws a batch as measured on this rank (PipelineExecutor::measured) next to the plan that `schedule` gives with the
/// same costs: an SVG; "" if nothing was measured. Each rank's time starts at 0 by its own clock. Collective over the
/// pipeline.
std::string draw_measured(const comm::Group& pipeline, const layout::schedule::Schedule& schedule,
                          const std::vector<layout::schedule::TimedAction>& measured);

}  // namespace tessera::parallel
