#pragma once
/// \file
/// train/reporting/: a run's output: metrics, log lines, progress, phases, trace, report.
///
/// The metrics of a run, and OUT/metrics.jsonl: one JSON object per logged step and per evaluation; the last line is
/// {"event":"end", ...totals} (docs/configuration.md).

#include <tessera/base/append_file.h>
#include <tessera/base/value.h>
#include <tessera/train/reporting/log_sample.h>
#include <tessera/train/reporting/phases.h>
#include <tessera/train/reporting/utilization.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tessera::train {

/// Router statistics of a mixture of experts between two logs.
struct RouterMetrics {
  std::int64_t experts = 0;                               ///< 0: no experts
  double auxiliary_loss = 0, z_loss = 0;                  ///< means over micro-batches, without coefficients
  std::map<std::int64_t, std::vector<double>> load = {};  ///< by block: share of slots that chose each expert
  bool limited = false;                                   ///< experts have a limited capacity
  std::int64_t dropped = 0;  ///< slots beyond capacity in all layers, since the previous log
  /// Shares averaged over all blocks, [experts].
  std::vector<double> mean_load() const;
  /// The largest share of all blocks times the number of experts: 1 if the load is even.
  double imbalance() const;
};

/// The gradient noise scale (features/noise_scale.h).
struct NoiseMetrics {
  bool measured = false;               ///< false: --gradient_noise_scale is off, or no step was taken
  double squared_norm = 0, trace = 0;  ///< estimates, means over the steps since the previous log
  std::optional<double> scale = {};    ///< rows, smoothed over the run; empty: not known yet
};

/// Metrics of preference losses (train/loss/preference.h): means over the pairs since the previous log.
struct PreferenceMetrics {
  bool measured = false;                    ///< false: no pairs
  double chosen = 0, rejected = 0;          ///< rewards of the chosen and of the rejected answers
  double accuracy = 0;                      ///< share of the pairs whose chosen answer has the higher reward
  double log_chosen = 0, log_rejected = 0;  ///< log-probabilities of the answers, sums or means as in the loss
};

/// Quality of a classifier.
struct ClassMetrics {
  bool measured = false;  ///< false: the model is not a classifier
  double accuracy = 0;    ///< share of rows whose most likely class is correct
  double f1 = 0;          ///< F1 of class 1 of two, otherwise the mean over occurring classes (scikit-learn's macro)
};
/// From [3, classes]: per class, rows predicted correctly, rows predicted as this class, and rows of this class.
ClassMetrics class_metrics(const std::vector<double>& counts);
/// "accuracy" and "f1"; empty if nothing was measured.
std::vector<std::pair<std::string, double>> named(const ClassMetrics& metrics);

/// The numbers under TRL's names ("rewards/chosen", ...); empty if nothing was measured.
std::vector<std::pair<std::string, double>> named(const PreferenceMetrics& metrics);

/// The losses of multi-token prediction by depth: "mtp_1_loss", ...
std::vector<std::pair<std::string, double>> named_predictions(const std::vector<double>& losses);

/// A logged step. `loss` is the mean over the scored tokens of all ranks since the previous log (with --hf_loss_scale
/// the value that transformers' Trainer would report, window.h).
struct StepMetrics {
  std::int64_t step = 0;         ///< optimizer steps done
  double loss = 0;               ///< mean over the scored tokens since the previous log
  double grad_norm = 0;          ///< norm of the last step, before clipping
  double learning_rate = 0;      ///< rate in the last step
  double epoch = 0;              ///< passes over the training data, with a fraction
  double tokens_per_second = 0;  ///< tokens of all ranks without padding, since the previous log
  double step_time_ms = 0;       ///< mean since the previous log
  /// processor seconds of one step, all ranks and threads; mean since the previous log
  double cpu_seconds = 0;
  double cpu_utilization = 0;    ///< cpu_seconds / (time x ranks x threads)
  double flops_utilization = 0;  ///< model FLOP/s / the measured peak of all ranks (MFU); 0: unknown
  /// input tokens since step 0; -1: not requested (include_num_input_tokens_seen)
  std::int64_t num_input_tokens_seen = -1;
  std::int64_t skipped_steps = -1;        ///< steps with non-finite gradients since the previous log; -1: n/a
  double loss_scale = 0;                  ///< scale of --fp16 in the next step; 0: no fp16
  RouterMetrics routers = {};             ///< since the previous log
  NoiseMetrics noise = {};                ///< since the previous log
  std::vector<double> predictions = {};   ///< multi-token prediction: each depth's mean loss since the previous log
  PreferenceMetrics preference = {};      ///< since the previous log
  std::int64_t rows = 0;                  ///< rows of the last step if steps differ; otherwise 0
  std::vector<std::int64_t> shares = {};  ///< rows of the last step by rank (--balance_batches); otherwise empty
  std::vector<double> idle_by_rank = {};  ///< by rank: share of the time spent waiting for others
  std::vector<double> sums = {};          ///< for the caller of Window; not written
  PhaseSeconds phases = {};               ///< seconds of one step, mean over steps and ranks; other: between the steps
  double wall_time = 0;                   ///< Unix seconds of the log
  std::vector<std::int64_t> memory_by_rank;   ///< peak resident bytes so far, one per rank
  std::vector<MemoryByKind> memory_kinds;     ///< breakdown of the memory, one per rank
  std::int64_t peak_memory_bytes() const;     ///< the maximum over the ranks
  std::int64_t peak_allocated_bytes() const;  ///< the same for bytes that tensors have requested
};

/// The metrics of one evaluation.
struct EvalMetrics {
  std::int64_t step = 0;               ///< steps done before it
  double epoch = 0;                    ///< passes over the training data, with a fraction
  double loss = 0;                     ///< mean over the scored tokens of the validation set
  double perplexity() const;           ///< exp(loss); meaningful only if has_perplexity()
  std::int64_t tokens = 0;             ///< scored tokens; for pairs of answers: pairs; for a classifier: rows
  std::int64_t rows = 0, batches = 0;  ///< rows: of the whole validation set; batches: of this rank
  double seconds = 0;                  ///< duration
  /// means over the whole validation set; if `preference.measured`, `loss` is the mean over its pairs
  PreferenceMetrics preference = {};
  ClassMetrics classes = {};  ///< metrics of a classifier, over the whole validation set
  /// False if the loss is not that of predicted tokens but of pairs of answers or of classes; perplexity is not
  /// reported then.
  bool has_perplexity() const { return !preference.measured && !classes.measured; }
};

/// The metrics of a whole run.
struct RunTotals {
  std::int64_t steps = 0;  ///< steps done, including those before a resume
  double epoch = 0;        ///< passes over the training data, with a fraction
  /// tokens processed by this process and its peers since it started (inputs without padding)
  std::int64_t tokens = 0;
  std::int64_t rows = 0;             ///< likewise
  std::int64_t steps_here = 0;       ///< likewise
  double seconds = 0;                ///< since the first step
  double startup_seconds = 0;        ///< from the start of the process to the first step
  double loss = 0;                   ///< loss of the last log
  double train_loss = 0;             ///< mean over the steps of this process
  double eval_loss = 0;              ///< loss of the last evaluation
  bool has_eval = false;             ///< eval_loss is valid
  bool has_perplexity = true;        ///< whether it is a loss of tokens, not of pairs or classes
  double tokens_per_second = 0;      ///< over training steps only
  double flops_per_second = 0;       ///< speed of the model, all ranks
  double peak_flops_per_second = 0;  ///< peak of all ranks in a matrix product (utilization.h); 0: unknown
  /// arithmetic of the model since step 0, including the runs before a resume
  double total_flops = 0;
  std::int64_t peak_memory_bytes = 0;         ///< maximum over the ranks
  std::int64_t peak_allocated_bytes = 0;      ///< the same for bytes that tensors have requested
  std::int64_t skipped_steps = 0;             ///< steps whose gradients were not finite
  double loss_scale = 0;                      ///< scale of --fp16 after the last step; 0: no fp16
  double unigram_entropy = 0;                 ///< entropy of the training data, nats per token (unigram.h)
  std::string reason = "done";                ///< done | terminated | interrupted
  std::string advice;                         ///< the resource that limited the run (advice.h)
  Value communication = Value::make_array();  ///< rank 0's communication_table() (report.h)
};

Value to_json(const StepMetrics& metrics);  ///< {"step", "loss", "grad_norm", ...}: see docs/architecture.md
Value to_json(const EvalMetrics& metrics);  ///< {"event":"eval", ...}
Value to_json(const RunTotals& totals);     ///< {"event":"end", ...}
Value to_json(const MemoryByKind& memory);  ///< {"parameters": bytes, ...}
/// Entries in the form of Hugging Face's trainer_state.json; the entry of the end has train_runtime and similar
/// members.
Value hf_log_entry(const StepMetrics& metrics);
Value hf_log_entry(const EvalMetrics& metrics);
Value hf_log_entry(const RunTotals& totals);

/// Peak resident memory of this process so far (VmHWM of /proc/self/status), and the currently resident memory (VmRSS).
std::int64_t peak_resident_bytes();
std::int64_t resident_bytes();
/// Processor seconds that all threads of this process have used so far.
double process_cpu_seconds();
/// Seconds since this process was started by its launcher (from /proc/self/stat).
double seconds_since_process_start();

/// Lines of metrics.jsonl, verbatim. A line never changes, so all readers share it.
using MetricsLines = std::vector<std::shared_ptr<const std::string>>;

/// The file, kept open for appending. Every line is a single write, so readers never see a partial line. Reals have 9
/// significant digits. Keeps a sample of the lines in memory, bounded however long the run is.
class MetricsFile {
 public:
  /// Starts an empty file. With resumed_step >= 0, an existing file keeps its lines up to that step instead. Unreadable
  /// lines (after a power failure) are dropped with a warning. The file is read line by line.
  MetricsFile(const std::string& path, std::int64_t resumed_step);

  /// Lines that cannot be written at present (full disk) are kept and written later.
  void append(const Value& line);
  /// A sample of the lines so far, oldest first: the first, the last, and in between, for each of at most 256 equal
  /// parts of the steps, its ends and peaks (log_sample.h).
  MetricsLines lines() const { return sample_.lines(); }

 private:
  AppendFile file_;
  LogSample<std::shared_ptr<const std::string>> sample_;
};

}  // namespace tessera::train
