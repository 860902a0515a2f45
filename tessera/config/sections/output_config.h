#pragma once
/// \file
/// Section "output" of a run's settings.

#include <tessera/config/sections/words.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

/// Output of a run: log lines, metrics, checkpoints, evaluations.
struct OutputConfig {
  std::string output_dir;             ///< required by `tessera train`
  bool overwrite_output_dir = false;  ///< replace the run in output_dir; files that no run wrote stay
  /// folder, "last" (newest in output_dir), "auto" ("last", or from scratch)
  std::string resume_from_checkpoint;
  double logging_steps = 500;                   ///< below 1: a share of all steps
  bool logging_first_step = false;              ///< also log the first step
  Interval logging_strategy = Interval::steps;  ///< when log lines are written
  bool logging_nan_inf_filter = true;           ///< replace a non-finite loss by the mean of the others in log lines
  std::string run_name;                         ///< in the report and TensorBoard; empty: the name of output_dir
  CountedTokens include_num_input_tokens_seen = CountedTokens::no;  ///< tokens counted in log lines
  LogFormat log_format = LogFormat::hf;                             ///< format of lines on standard output
  std::string report_to = "tensorboard";             ///< trackers, comma-separated, or none: see reports_to()
  std::string metrics_file;                          ///< latest metrics in Prometheus' text format; empty: none
  std::int64_t metrics_port = 0;                     ///< serve them at http://127.0.0.1:PORT/metrics; 0: off
  std::string logging_dir;                           ///< TensorBoard events; empty: OUT/runs
  bool hf_loss_scale = false;                        ///< report loss x (T-1)/T, as transformers' Trainer does
  SaveStrategy save_strategy = SaveStrategy::steps;  ///< when checkpoints are written
  double save_steps = 500;                           ///< below 1: a share of all steps
  std::int64_t save_total_limit = 0;                 ///< 0: keep all
  bool save_only_model = false;                      ///< omit the optimizer state; such checkpoints cannot be resumed
  /// every rank writes its part, or rank 0 writes everything
  StateDictType save_state_dict_type = StateDictType::sharded;
  bool async_save = true;                          ///< continue training while a sharded checkpoint is written
  WhenBusy async_save_when_busy = WhenBusy::wait;  ///< when the previous checkpoint is still being written
  std::int64_t checkpoint_in_memory =
      0;                          ///< steps between in-memory copies, which survive the death of a process; 0: none
  bool ignore_data_skip = false;  ///< a resumed run restarts its epoch's data
  Interval eval_strategy = Interval::no;         ///< when the model is evaluated
  double eval_steps = 0;                         ///< 0: logging_steps; below 1: a share of all steps
  bool eval_on_start = false;                    ///< evaluate before the first step
  double eval_delay = 0;                         ///< steps (eval_strategy steps) or epochs before the first evaluation
  bool do_eval = false;                          ///< evaluate after training
  bool load_best_model_at_end = false;           ///< export the best checkpoint by metric_for_best_model
  std::string metric_for_best_model;             ///< empty: loss
  Choice greater_is_better = Choice::automatic;  ///< auto: false for losses
  NanPolicy nan_policy = NanPolicy::stop;        ///< what to do when a step's loss or gradients are not finite
  std::int64_t nan_skip_limit = 10;              ///< skip: such steps allowed in a row; one more ends the run
  std::int64_t check_replicas_steps = 100;       ///< steps between comparisons of replicated state; 0: never
  bool disable_tqdm = false;                     ///< no progress line
  bool profile = false;                          ///< write OUT/trace.json: a Chrome trace with a row per rank
  bool model_card = true;                        ///< write OUT/README.md with the finished model
  bool sigterm_is_success = false;               ///< exit with 0 instead of 3 after SIGTERM and saving
};

/// Whether report_to names the tracker: "tensorboard" or "csv". metrics.jsonl and report.html are always
/// written.
inline bool reports_to(const OutputConfig& output, std::string_view tracker) {
  return ("," + output.report_to + ",").find("," + std::string(tracker) + ",") != std::string::npos;
}

}  // namespace tessera
