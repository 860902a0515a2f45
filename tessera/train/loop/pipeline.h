#pragma once
/// \file
/// Pipeline parallelism of a run (--pp_size): creates the stages and passes batches through them.

#include <tessera/comm/group.h>
#include <tessera/data/dataset.h>
#include <tessera/layout/schedule/schedule.h>
#include <tessera/layout/schedule/timing.h>
#include <tessera/layout/stages.h>
#include <tessera/models/causal_lm.h>
#include <tessera/parallel/fully_shard.h>
#include <tessera/parallel/pipeline/tied_embedding.h>
#include <tessera/train/core/run_groups.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera {
struct RunConfig;
}

namespace tessera::train {

class PassesOfBatch;

/// The cuts of the model and the schedule of each rank; identical on every rank.
struct PipelinePlan {
  layout::schedule::Schedule schedule;    ///< schedule of a training step; computations only
  std::vector<layout::StagePart> stages;  ///< in the order of the forward pass
  std::int64_t depths = 0;                ///< number of multi-token prediction depths that the last stage computes

  /// The stages on a rank of the pipeline.
  std::vector<layout::StagePart> parts_of(int rank) const;
};

/// The plan for the settings (--pipeline_schedule, --pipeline_stages_per_rank, --pipeline_layout), with the
/// micro-batches of gradient accumulation. Throws InputError for settings that the model or the run cannot support.
PipelinePlan plan_pipeline(const RunConfig& config, const models::LanguageModel& model);
/// "1f1b, 8 micro-batches; rank 0: embeddings, blocks 0-5; rank 1: blocks 6-11, end"; with depths at the end: "end with
/// 1 depth of multi-token prediction".
std::string describe(const PipelinePlan& plan);

/// One rank's part. The model contains only this rank's stages. Not thread-safe.
class RunPipeline {
 public:
  /// `config`, `groups`, `model` and the `sharded` that divides it outlive this object. `enter`: called before every
  /// forward (true) and backward pass (false).
  RunPipeline(PipelinePlan plan, const RunConfig& config, const RunGroups& groups, models::LanguageModel& model,
              Sharded& sharded, std::function<void(bool forward)> enter);
  ~RunPipeline();

  const PipelinePlan& plan() const { return plan_; }
  /// Builds the schedule of steps with `micro_batches` micro-batches (--batch_size_schedule) before the first one.
  /// Throws InputError for a number that the schedule does not support.
  void prepare_for(std::int64_t micro_batches) { (void)schedule_of(static_cast<std::size_t>(micro_batches)); }
  /// Runs forward and backward of a step's micro-batches, with losses multiplied by `scale`. Gradients are accumulated
  /// without being reduced (Sharded::AccumulateLocally), but in fixed order each backward reduces its own. Returns the
  /// losses, on every rank. Collective over the pipeline.
  std::vector<double> train(const std::vector<data::Batch>& batches, double scale);
  /// Runs this rank's computations of a step without communicating (PipelineExecutor::rehearse); throws if they do not
  /// fit into memory. Leaves gradients behind.
  void rehearse(const std::vector<data::Batch>& batches);
  /// The losses of batches, each times its scale, without gradients; for a classifier also the values that
  /// take_predictions() returns. On every rank; collective over the pipeline.
  std::vector<double> evaluate(const std::vector<data::Batch>& batches, const std::vector<double>& scales);
  /// Computes models::CausalLm::next_logits() through all stages. Returns it on every rank; collective over the
  /// pipeline.
  at::Tensor next_logits(const at::Tensor& ids, models::KvCache& cache);
  /// An SVG that shows the last step as measured, next to its schedule planned with the same costs. Collective over the
  /// pipeline. Each rank starts at 0, by its own clock.
  std::string drawing();
  /// Origin of a NaN or an infinity in the last passes: "first in stage 1, micro-batch 2 (1F2), on rank 3"; empty: no
  /// stage produced one. Collective over `group`: this pipeline, or the job.
  std::string first_not_finite(const comm::Group& group) const;
  /// After the reduction: adds the gradients of the parameter that the first and the last stage share, so that both
  /// have the sum. Collective over the ranks of both stages.
  void add_tied_gradients(Sharded& sharded);

 private:
  void prepare(const std::vector<data::Batch>& batches, double scale);
  std::vector<double> losses_of(const layout::schedule::Schedule& schedule);
  /// The schedule of a training step with `micro_batches` micro-batches.
  const layout::schedule::Schedule& schedule_of(std::size_t micro_batches);
  void watch_tied_parameter(const ShardingOptions& sharding);

  PipelinePlan plan_;
  const RunConfig& config_;
  const RunGroups& groups_;
  models::LanguageModel& model_;
  std::function<void(bool)> enter_;
  std::unique_ptr<PassesOfBatch> passes_;
  std::optional<parallel::TiedGradient> tied_;
  std::map<int, layout::schedule::Schedule> others_;     // schedules of steps with other numbers of micro-batches
  std::vector<layout::schedule::TimedAction> measured_;  // times of the last step
  int measured_micro_batches_ = 0;
};

}  // namespace tessera::train
