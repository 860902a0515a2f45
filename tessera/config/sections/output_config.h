#pragma once
/// \file
/// Section "output" of a run's settings.

#include <tessera/config/sections/words.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

/// What a run writes and when: log lines, metrics, checkpoints, evaluations.
struct OutputConfig {
  std::string output_dir;                       ///< required by train
  bool overwrite_output_dir = false;            ///< replace the run in output_dir; what no run has written stays
  std::string resume_from_checkpoint;           ///< folder, "last" (newest in output_dir), "auto" (or from the start)
  double logging_steps = 500;                   ///< below 1: a share of all steps
  bool logging_first_step = false;              ///< log the first step, too
  Interval logging_strategy = Interval::steps;  ///< when log lines are written
  bool logging_nan_inf_filter = true;  ///< a loss that is not finite counts as the mean of the others in log lines
  std::string run_name;                ///< in the report and TensorBoard; empty: the name of output_dir
  CountedTokens include_num_input_tokens_seen = CountedTokens::no;  ///< in the log lines
  LogFormat log_format = LogFormat::hf;                             ///< how lines on standard output look
  std::string report_to = "tensorboard";             ///< trackers with commas between them, or none: reports_to()
  std::string metrics_file;                          ///< newest numbers in Prometheus' text form; empty: none
  std::int64_t metrics_port = 0;                     ///< the same at http://127.0.0.1:PORT/metrics; 0: none
  std::string logging_dir;                           ///< TensorBoard events; empty: OUT/runs
  bool hf_loss_scale = false;                        ///< report loss x (T-1)/T, as transformers' Trainer does
  SaveStrategy save_strategy = SaveStrategy::steps;  ///< when checkpoints are written
  double save_steps = 500;                           ///< below 1: a share of all steps
  std::int64_t save_total_limit = 0;                 ///< 0: keep all
  bool save_only_model = false;                      ///< checkpoints without optimizer state: they cannot be resumed
  StateDictType save_state_dict_type = StateDictType::sharded;  ///< every rank writes its part, or rank 0 all of it
  bool async_save = true;                          ///< the step goes on while a sharded checkpoint is written
  WhenBusy async_save_when_busy = WhenBusy::wait;  ///< the fate of a checkpoint that is due meanwhile
  std::int64_t checkpoint_in_memory =
      0;                          ///< steps between copies in memory, which survive the death of a process; 0: none
  bool ignore_data_skip = false;  ///< a resumed run starts its epoch's data again
  Interval eval_strategy = Interval::no;         ///< when the model is evaluated
  double eval_steps = 0;                         ///< 0: logging_steps; below 1: a share of all steps
  bool eval_on_start = false;                    ///< evaluate before the first step, too
  double eval_delay = 0;                         ///< steps (eval_strategy steps) or epochs before the first evaluation
  bool do_eval = false;                          ///< evaluate after the training
  bool load_best_model_at_end = false;           ///< the final export is the best checkpoint by metric_for_best_model
  std::string metric_for_best_model;             ///< empty: loss
  Choice greater_is_better = Choice::automatic;  ///< auto: false for losses
  NanPolicy nan_policy = NanPolicy::stop;        ///< the fate of a step whose loss or gradients are not finite
  std::int64_t nan_skip_limit = 10;              ///< skip: so many such steps in a row; one more ends the run
  std::int64_t check_replicas_steps = 100;  ///< steps between comparisons of what several ranks hold whole; 0: never
  bool disable_tqdm = false;                ///< no progress line
  bool profile = false;                     ///< write OUT/trace.json: a Chrome trace with a row per rank
  bool model_card = true;                   ///< OUT/README.md beside the finished model
  bool sigterm_is_success = false;          ///< after SIGTERM and saving the exit code is 0, not 3
};

/// Whether report_to names the tracker: "tensorboard" or "csv". metrics.jsonl and report.html are always
/// written.
inline bool reports_to(const OutputConfig& output, std::string_view tracker) {
  return ("," + output.report_to + ",").find("," + std::string(tracker) + ",") != std::string::npos;
}

}  // namespace tessera
