#pragma once
/// \file
/// A pipeline's batches on this rank: the executor, and what tessera::PipelineParallel and `tessera train --pp_size`
/// both put around it.

#include <tessera/parallel/pipeline/executor.h>
#include <tessera/parallel/pipeline/stage_gathers.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tessera::parallel {

/// Its address stays, as the executor calls it. Not thread-safe.
class StageRunner {
 public:
  /// `last_rank`: the rank of the last stage. PipelineOptions::sharding is set here.
  StageRunner(PipelineOptions options, int last_rank);

  /// From now on a stage's parameters are whole from its first forward to its last backward in a batch (StageGathers).
  void gather_per_batch(Sharded& sharded, std::map<int, std::vector<std::string>> parameters);
  /// PipelineExecutor::run() of a schedule's computations, with gathers where they are asked for. After an error
  /// nothing stays gathered.
  std::vector<at::Tensor> run(const layout::schedule::Schedule& computations);
  /// The same of a schedule that ends in losses: by micro-batch, on every rank.
  std::vector<double> losses_of(const layout::schedule::Schedule& computations);
  /// Where a NaN or an infinity of the last batch came from: "first in stage 1, micro-batch 2 (1F2), on rank 3"; "": no
  /// stage handed one on. Collective over `group`: this pipeline, or the job.
  std::string first_not_finite(const comm::Group& group) const;
  PipelineExecutor& executor() { return executor_; }

 private:
  comm::Group group_;
  int last_rank_;
  std::optional<StageGathers> gathers_;
  PipelineExecutor executor_;
};

/// A batch as this rank has measured it (PipelineExecutor::measured), beside what `schedule` plans with the same costs:
/// an SVG; "" where nothing was measured. Ranks begin at 0, each by its own clock. Collective over the pipeline.
std::string draw_measured(const comm::Group& pipeline, const layout::schedule::Schedule& schedule,
                          const std::vector<layout::schedule::TimedAction>& measured);

}  // namespace tessera::parallel
