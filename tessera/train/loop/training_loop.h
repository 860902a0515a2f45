#pragma once
/// \file
/// train/loop/: a run from start to end: planning, the step, evaluation, signals.
///
/// train/ takes one run from its configuration to the folder of a trained model. This header declares the loop of a run
/// as one object. Its parts are in separate files: training_loop.cpp (from the first step to the end),
/// training_step.cpp (one step), training_saves.cpp (checkpoints and the finished model).

#include <tessera/comm/world.h>
#include <tessera/train/core/checkpoint_manager.h>
#include <tessera/train/core/guarded_update.h>
#include <tessera/train/core/optimization.h>
#include <tessera/train/loop/compiled_run.h>
#include <tessera/train/loop/model_loss.h>
#include <tessera/train/loop/parallelize.h>
#include <tessera/train/loop/passes.h>
#include <tessera/train/loop/replica_check.h>
#include <tessera/train/loop/run_numbers.h>
#include <tessera/train/loop/setup.h>
#include <tessera/train/loop/signals.h>
#include <tessera/train/loop/step_rows.h>
#include <tessera/train/reporting/journal.h>
#include <tessera/train/reporting/output.h>
#include <tessera/train/reporting/run_clock.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera::train {

class TrainingLoop {
 public:
  /// Divides the model and creates its optimizer; writes nothing yet. Collective. `process_bytes`: resident before
  /// anything was created.
  TrainingLoop(Setup setup, const Value& configuration, std::int64_t process_bytes);
  /// Whether forward and backward of a micro-batch with the longest rows fit into the memory of every rank. Collective;
  /// leaves no gradients.
  bool fits();
  /// Trains to the end, or until a signal. Collective.
  ExitCode run();

 private:
  /// Results of the agreement between the ranks before every step.
  struct Agreement {
    StepCounts counts;
    StopRequest stop = StopRequest::none;
    bool save_ended = false;  ///< whether every rank has finished its part of the current checkpoint
  };

  // training_loop.cpp
  void divide_model();
  void make_optimizer();
  void open_output();
  void describe_start();
  void train_one_step(const std::vector<data::Batch>& batches, const Agreement& agreed, std::int64_t begin_ns,
                      double begin_cpu);
  void log(bool tell = true);
  StopRequest evaluate(bool& best);
  ExitCode finish(StopRequest stop);
  void write_timeline();
  void write_papers(StopRequest stop);
  void write_report();
  // training_step.cpp
  Agreement agree_on_step(const std::vector<data::Batch>& batches);
  bool time_is_over() const;
  StopRequest stop_requested() const;
  StopRequest stop_of_all() const;
  void compute_gradients(const std::vector<data::Batch>& batches, const StepCounts& all_ranks);
  LossScales loss_scales(const std::vector<data::Batch>& batches, const StepCounts& all_ranks) const;
  data::Batch largest_batch();
  // training_saves.cpp
  void open_checkpoints();
  void save_if_due(bool best);
  void save();
  void save_in_memory();
  void renew_output_lock();
  std::vector<SavedModel> fill(SaveContents& contents);
  void saved(const SaveOutcome& outcome);
  void load_best_model();
  void save_final_model();
  checkpoint::RunState run_state() const;

  const RunPlan& plan() const { return setup_.plan; }
  Objective& objective() { return setup_.parts.objective != nullptr ? *setup_.parts.objective : model_loss_; }
  void bring_back();
  bool divided() { return is_divided(setup_, model_); }
  /// Whether checkpoints consist of whole tensors, written by rank 0; PEFT supports only one file of adapters.
  bool saves_whole() const { return setup_.config.output.save_state_dict_type == StateDictType::full || setup_.lora; }

  Setup setup_;
  const Value& configuration_;
  comm::World& world_;
  ModelLoss model_loss_;
  StepRows rows_;
  ParallelModel model_;
  RunClock clock_;
  RunNumbers numbers_;
  std::optional<RunContext> context_;    // passed to the features once the model is divided
  std::optional<CompiledRun> compiled_;  // --device xla
  std::unique_ptr<StepPasses> passes_;
  ReplicaCheck replicas_;
  CheckpointManager checkpoints_;
  StopSignals signals_;
  std::optional<OutputFolder> output_;  // rank 0
  Journal journal_;
  std::int64_t step_ = 0;        // steps done
  bool evaluation_due_ = false;  // a stop request interrupted the evaluation
  GuardedUpdate update_;
  GuardedUpdate::Outcome last_;
};

}  // namespace tessera::train
