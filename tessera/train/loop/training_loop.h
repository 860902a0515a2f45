#pragma once
/// \file
/// train/loop/: a run from its start to its end: what is planned, the step, evaluation, signals.
///
/// train/: one run from configuration to a trained folder. This header: the loop of a run, as one object: what it owns,
/// and its parts, each in a file of its own: training_loop.cpp (from the first step to the end), training_step.cpp (one
/// step), training_saves.cpp (checkpoints and the finished model), training_numbers.cpp (what is measured and told).

#include <tessera/comm/world.h>
#include <tessera/parallel/fully_shard.h>
#include <tessera/parallel/replicas.h>
#include <tessera/parallel/tensor_parallel.h>
#include <tessera/train/core/checkpoint_manager.h>
#include <tessera/train/core/noise_scale.h>
#include <tessera/train/core/optimization.h>
#include <tessera/train/core/step.h>
#include <tessera/train/loop/block_routing.h>
#include <tessera/train/loop/predictions.h>
#include <tessera/train/loop/preferences.h>
#include <tessera/train/loop/routers.h>
#include <tessera/train/loop/row_balance.h>
#include <tessera/train/loop/setup.h>
#include <tessera/train/loop/sharding.h>
#include <tessera/train/loop/signals.h>
#include <tessera/train/reporting/advice.h>
#include <tessera/train/reporting/journal.h>
#include <tessera/train/reporting/output.h>
#include <tessera/train/reporting/summary.h>
#include <tessera/train/reporting/trace.h>
#include <tessera/train/reporting/window.h>

#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace tessera::train {

inline constexpr double not_known = std::numeric_limits<double>::quiet_NaN();

class TrainingLoop {
 public:
  /// Divides the model and makes its optimizer; nothing is written yet. Collective. `process_bytes`: resident before
  /// anything was made.
  TrainingLoop(Setup setup, const Value& configuration, std::int64_t process_bytes);
  /// Whether forward and backward of a micro-batch with the longest rows fit into the memory of every rank. Collective;
  /// no gradient stays.
  bool fits();
  /// Trains to the end, or until a signal. Collective.
  ExitCode run();

 private:
  /// What the ranks tell each other before every step.
  struct Agreement {
    StepCounts counts;
    StopRequest stop = StopRequest::none;
    bool save_ended = false;  ///< every rank has done its part of the checkpoint that is being written
  };

  void shard_model();
  void predict_memory();
  void open_output();
  void enter(Phase phase, std::string_view name);
  void enter(Phase phase) { enter(phase, phase_names[static_cast<std::size_t>(phase)]); }
  void prepare_measuring();
  std::vector<data::Batch> read_step();
  data::Batch read_rows(std::int64_t micro) const;
  data::Batch idle_batch() const;
  std::vector<data::Batch> read_token_batches() const;
  Agreement agree_on_step(const std::vector<data::Batch>& batches);
  StopRequest stop_requested() const;
  bool time_is_over() const;
  void compute_in_pipeline(const std::vector<data::Batch>& batches, double scale, double logged);
  void compute_gradients(const std::vector<data::Batch>& batches, const StepCounts& all_ranks);
  void count_squares(std::size_t micro);
  void count_noise();
  bool update_weights();
  void end_fp8_step();
  void end_compression_step();
  bool check_norm();
  void check_replicas();
  void renew_output_lock();
  bool replicas_are_checked() const;  // --check_replicas_steps
  std::vector<parallel::NamedTensor> whole_on_tensor_ranks() const;
  void count_step(double seconds, double cpu_seconds);
  void log(bool tell = true);
  /// Returns whether it was the best so far.
  bool evaluate();
  void open_checkpoints();
  void save();
  /// --checkpoint_in_memory: a checkpoint in the agent's folder in memory, for the ranks that are started after a
  /// failure.
  void save_in_memory();
  std::vector<SavedModel> fill(SaveContents& contents) const;
  void saved(const SaveOutcome& outcome);
  void load_best_model();
  void save_final_model();
  ExitCode finish(StopRequest stop);
  void count_totals(StopRequest stop);
  void write_report();

  checkpoint::RunState run_state() const;
  Utilization utilization() const;
  double seconds_left() const { return step_seconds_ * static_cast<double>(plan_.total_steps - step_); }
  /// Ranks that log the same losses, and divide them by their number.
  int ranks_with_same_loss() const { return setup_.groups.tensor_ranks() * setup_.groups.pipeline_ranks(); }
  /// In fixed order one of them tells: halves would be added up in another order than wholes.
  bool one_tells_loss() const { return pipeline_ && setup_.config.parallel.deterministic_reduce; }
  std::int64_t row_tokens() const { return setup_.datasets.train->max_length(); }
  double flops_per_token() const {
    return setup_.lora ? models::lora_flops_per_token(*setup_.model, row_tokens())
                       : setup_.model->flops_per_token(row_tokens());
  }
  /// Parts of the model are elsewhere, so that forward passes and saving are collective.
  bool divided() const {
    return sharded_->shard_ranks() > 1 || setup_.groups.cuts() || setup_.groups.expert_ranks() > 1;
  }
  /// Checkpoints of whole tensors, which rank 0 writes; PEFT knows one file of adapters only.
  bool saves_whole() const { return setup_.config.output.save_state_dict_type == StateDictType::full || setup_.lora; }

  Setup setup_;
  const Value& configuration_;
  comm::World& world_;
  const RunPlan& plan_;
  const data::Sampler sampler_;
  const OptimizationConfig optimization_;   // with the learning rate that --learning_rate_rule makes of the given one
  std::optional<RowBalance> balance_;       // --balance_batches
  std::optional<Preferences> preferences_;  // --preference_loss
  std::optional<SmallBatches> small_;       // --gradient_noise_scale: of the present step, on this rank
  NoiseEstimate noise_sums_;                // what this rank has summed since the last log
  NoiseScale noise_;
  StepCore core_;
  std::optional<TensorParallel> tensor_;   // --tp_size
  Sharded* sharded_ = nullptr;             // the core's
  std::optional<RunPipeline> pipeline_;    // --pp_size
  std::shared_ptr<BlockRouting> routing_;  // which blocks and tokens are left out; null: none
  std::shared_ptr<const parallel::ActivationCheckpointing> checkpointing_;  // --gradient_checkpointing
  CheckpointManager checkpoints_;
  StopSignals signals_;
  std::optional<OutputFolder> output_;  // rank 0
  Journal journal_;

  std::int64_t step_ = 0;              // done
  std::int64_t skipped_steps_ = 0;     // whose gradients were not finite (--fp16, --nan_policy skip)
  std::int64_t skipped_logged_ = 0;    // how many of them a log line has told
  std::int64_t skipped_in_a_row_ = 0;  // counted for --nan_policy skip
  std::int64_t micro_batches_ = 0;     // all ranks', since the last log, those without rows left out
  double grad_norm_ = 0, learning_rate_ = 0;
  std::vector<Value> predicted_memory_;  // by rank
  std::string pipeline_drawing_;         // when the run has ended
  PhaseClock clock_;
  std::optional<Trace> trace_;  // --profile
  std::int64_t trace_zero_ns_ = 0;
  Window window_;
  PredictionWindow predictions_;
  RouterWindow routers_;
  models::RouterStatistics step_routers_;  // what they did in the last step
  std::int64_t equal_at_ = step_;          // the step after which replicas were compared last, or made equal
  std::int64_t process_bytes_;
  double peak_flops_ = 0;  // what all ranks can do together
  // Since the start of this process.
  std::int64_t tokens_ = 0, inputs_ = 0;  // without padding, with it
  double train_seconds_ = 0;
  double step_seconds_ = 0;  // smoothed, for the time left
  double loss_sum_ = 0, cpu_seconds_ = 0;
  PhaseSeconds phase_sums_ = {};
  StepMetrics last_log_;
  RunTotals totals_;
  std::int64_t started_ns_ = 0;
  Sample first_sample_, last_sample_;
};

}  // namespace tessera::train
