#pragma once
/// \file
/// train/features/: the optional parts of a run. Each feature has a header and a source here that contain everything
/// about it: its state, its work in a step, its texts and errors. features.cpp lists them in the order in which they
/// act.
///
/// This header: the hooks, the only interface between a run and its features.

#include <tessera/checkpoint/run_state.h>
#include <tessera/comm/world.h>
#include <tessera/data/dataset.h>
#include <tessera/models/causal_lm.h>
#include <tessera/models/lora.h>
#include <tessera/parallel/fully_shard.h>
#include <tessera/train/core/run_groups.h>
#include <tessera/train/core/run_plan.h>
#include <tessera/train/features/log_sums.h>
#include <tessera/train/features/objective.h>
#include <tessera/train/features/row_shares.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera {
struct RunConfig;
}

namespace tessera::train {

/// The additions that features make to a run before it is divided over the ranks.
struct FeatureParts {
  std::vector<std::string> facts;  ///< lines about the run, for its start and its model card
  Objective* objective = nullptr;  ///< the objective to train; null: the model's own loss
  RowShares* shares = nullptr;     ///< number of rows per rank; null: equal
  /// ShardingOptions::before_reduction; empty: no callback on gradients before they are reduced.
  std::function<void(const at::Tensor&)> before_reduction;
};

/// The whole model, before each rank keeps its part. Weights may have no memory yet (load_model_deferred).
struct ModelBuild {
  const RunConfig& config;
  const RunGroups& groups;
  const comm::World& world;
  models::LanguageModel& model;
  bool adapters = false;  ///< only LoRA adapters are trained
  FeatureParts& parts;
};

/// The starting point of a run.
struct RunBegin {
  const checkpoint::RunState* resumed = nullptr;  ///< null: starts at step 0
  const std::string& folder;                      ///< folder of the checkpoint
  const comm::World& world;
  data::Datasets& datasets;
  /// rows that can be read repeatedly, in case those in `datasets` cannot
  std::shared_ptr<const data::Dataset>& first_rows;
};

/// The run once its model is divided over the ranks. It is valid during all later hooks.
struct RunContext {
  const RunConfig& config;
  const RunGroups& groups;
  const comm::World& world;
  const RunPlan& plan;
  const data::Datasets& datasets;
  const data::Sampler& sampler;
  const std::shared_ptr<models::LanguageModel>& model;
  const std::optional<models::LoraConfig>& lora;
  bool resumed = false;
  Sharded& sharded;
  models::PartRunner part_runner;  ///< runs the model's parts; a feature that replaces it calls the previous one
};

/// A step whose rows have been read.
struct StepStart {
  std::int64_t step = 0;   ///< steps done before it
  double scale = 0;        ///< factor of the sum over tokens: 1 / scored tokens of the step, times the loss scale
  double loss_factor = 1;  ///< the loss scale
};

/// A step whose update has been made or skipped.
struct StepEnd {
  std::int64_t step = 0;  ///< steps done, including this one
  double grad_norm = 0;
  bool taken = false;  ///< false: gradients were not finite, and weights are unchanged
};

/// One optional part of a run. Every rank has the same features and calls their hooks in list order, so a hook may be
/// collective. Features do not call each other. The first three hooks throw InputError for wrong settings.
class RunFeature {
 public:
  virtual ~RunFeature() = default;
  /// Called once, in this order.
  virtual void prepare_model(ModelBuild& build) { (void)build; }
  virtual void begin_run(RunBegin& begin) { (void)begin; }
  virtual void divided(const RunContext& run) { (void)run; }
  virtual void start(std::vector<std::string>& notes) { (void)notes; }  ///< `notes`: lines for the log
  /// Called in every step: before its first forward, and after the update. MicroBatchFeature has more hooks.
  virtual void begin_step(const StepStart& start) { (void)start; }
  virtual void after_step(const StepEnd& end) { (void)end; }
  /// Whether after_step() reads the norm and the outcome of the step.
  virtual bool reads_outcome() const { return false; }
  /// Called when the steps since the last log are logged, and when a checkpoint is written.
  virtual void log(LogSums& sums) { (void)sums; }
  virtual void save(checkpoint::RunState& state) const { (void)state; }
};

/// A feature that acts within a step. A step that is compiled as a whole (--device xla) has no such hooks, so the
/// feature is refused there.
class MicroBatchFeature : public RunFeature {
 public:
  /// Called before each micro-batch and after its backward pass (in a pipeline: after all backward passes).
  virtual void begin_micro_batch(const data::Batch& batch) { (void)batch; }
  virtual void after_backward() {}
  /// Its name for users, such as "--gradient_noise_scale"; empty: it does nothing to `model`.
  virtual std::string acts_on(const models::LanguageModel& model) const = 0;
};

}  // namespace tessera::train
