#pragma once
/// \file
/// Pipeline parallelism of a run (--pp_size): which stages there are, and one batch through them.

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

/// Where the model is cut, and who does what when: the same on every rank.
struct PipelinePlan {
  layout::schedule::Schedule schedule;    ///< a training step's; computations only
  std::vector<layout::StagePart> stages;  ///< in the order of the forward pass
  std::int64_t depths = 0;                ///< depths of multi-token prediction that the last stage computes

  /// What a rank of the pipeline holds.
  std::vector<layout::StagePart> parts_of(int rank) const;
};

/// The plan that the settings ask for (--pipeline_schedule, --pipeline_stages_per_rank, --pipeline_layout), with the
/// micro-batches of gradient accumulation. Throws InputError for what the model, or the run, cannot have.
PipelinePlan plan_pipeline(const RunConfig& config, const models::LanguageModel& model);
/// "1f1b, 8 micro-batches; rank 0: embeddings, blocks 0-5; rank 1: blocks 6-11, end"; where the end has depths, "end
/// with 1 depth of multi-token prediction".
std::string describe(const PipelinePlan& plan);

/// One rank's share. The model has kept its stages only. Not thread-safe.
class RunPipeline {
 public:
  /// `config`, `groups`, `model` and `sharded`, which divides it, outlive it. `enter`: before every forward (true) and
  /// backward pass (false).
  RunPipeline(PipelinePlan plan, const RunConfig& config, const RunGroups& groups, models::LanguageModel& model,
              Sharded& sharded, std::function<void(bool forward)> enter);
  ~RunPipeline();

  const PipelinePlan& plan() const { return plan_; }
  /// Makes the schedule of steps with so many micro-batches (--batch_size_schedule) before the first one. Throws
  /// InputError for a number that the schedule cannot be made of.
  void prepare_for(std::int64_t micro_batches) { (void)schedule_of(static_cast<std::size_t>(micro_batches)); }
  /// Forward and backward of a step's micro-batches, whose losses are multiplied by `scale`; gradients are accumulated
  /// and not reduced (Sharded::AccumulateLocally); in fixed order each backward reduces its own. Returns the losses, on
  /// every rank. Collective over the pipeline.
  std::vector<double> train(const std::vector<data::Batch>& batches, double scale);
  /// A step's computations of this rank, with nothing from or for the others (PipelineExecutor::rehearse): throws where
  /// they do not fit into memory. Gradients are left behind.
  void rehearse(const std::vector<data::Batch>& batches);
  /// The losses of batches, each times its scale, without gradients; of a classifier with what take_predictions() is to
  /// give. On every rank; collective over the pipeline.
  std::vector<double> evaluate(const std::vector<data::Batch>& batches, const std::vector<double>& scales);
  /// models::CausalLm::next_logits() through all stages, on every rank; collective over the pipeline.
  at::Tensor next_logits(const at::Tensor& ids, models::KvCache& cache);
  /// The last step as it ran, beside what its schedule plans with the same costs: an SVG. Collective over the pipeline.
  /// Ranks begin at 0, each by its own clock.
  std::string drawing();
  /// Where a NaN or an infinity of the last passes came from: "first in stage 1, micro-batch 2 (1F2), on rank 3";
  /// empty: no stage handed one on. Collective over `group`: this pipeline, or the job.
  std::string first_not_finite(const comm::Group& group) const;
  /// After the reduction: what the first and the last stage have in common gets the sum of both gradients, there and
  /// here. Collective over the ranks of both stages.
  void add_tied_gradients(Sharded& sharded);

 private:
  void prepare(const std::vector<data::Batch>& batches, double scale);
  std::vector<double> losses_of(const layout::schedule::Schedule& schedule);
  /// That of a training step with so many micro-batches.
  const layout::schedule::Schedule& schedule_of(std::size_t micro_batches);
  void watch_tied_parameter(const ShardingOptions& sharding);

  PipelinePlan plan_;
  const RunConfig& config_;
  const RunGroups& groups_;
  models::LanguageModel& model_;
  std::function<void(bool)> enter_;
  std::unique_ptr<PassesOfBatch> passes_;
  std::optional<parallel::TiedGradient> tied_;
  std::map<int, layout::schedule::Schedule> others_;     // for steps with other numbers of micro-batches
  std::vector<layout::schedule::TimedAction> measured_;  // in the last step
  int measured_micro_batches_ = 0;
};

}  // namespace tessera::train
