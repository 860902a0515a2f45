#pragma once
/// \file
/// Internal to PipelineParallel: the schedule of a batch and the layers of each stage.

#include <tessera/layout/schedule/schedule.h>
#include <tessera/parallel/pipeline/layer_chain.h>
#include <tessera/parallel/pipeline/pipeline_parallel.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace tessera::parallel {

struct StagePlan {
  layout::schedule::Schedule schedule;
  std::vector<std::pair<std::size_t, std::size_t>> layers;  ///< by stage: [first, past)
  std::vector<PipelineStageRow> rows;

  /// For each layer, whether `rank` has it.
  std::vector<bool> kept_by(int rank) const;
  /// For each layer, its place, such as "stage 2 on rank 1".
  std::vector<std::string> places() const;
};

/// Throws InputError. Collective over the group for PipelineCut::by_measured().
StagePlan plan_stages(LayerChain& chain, const LayerTensors& tensors, const PipelineParallelOptions& options);
/// "zbv, 8 micro-batches; rank 0: 0-2 and 7; rank 1: 3-6"
std::string describe(const StagePlan& plan);

}  // namespace tessera::parallel
