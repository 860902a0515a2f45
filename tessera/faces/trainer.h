#pragma once
/// \file
/// Hugging Face's Trainer, for any torch::nn::Module with a loss and rows of data.
///
///   tessera::TrainingArguments arguments(argc, argv);     // their flags: --learning_rate 1e-3 --fsdp full_shard ...
///   tessera::Trainer trainer({.model = net,
///                             .arguments = arguments,
///                             .loss = tessera::loss_of<Net>([](Net& net, const auto& batch) {
///                               return at::cross_entropy_loss(net.forward(batch[0]), batch[1]);
///                             }),
///                             .train_dataset = tessera::tensor_rows({images, labels})});
///   trainer.train();
///
/// The rows of a step, the schedule, and the times of logs, evaluations and saves are those of `tessera train`
/// (train/core/run_plan.h). The evaluations of train() also determine the best model (train/core/best_model.h:
/// --metric_for_best_model may be any of their metrics) and lower the rate of reduce_lr_on_plateau.

#include <tessera/config/resolve/resolve.h>
#include <tessera/faces/loader.h>
#include <tessera/faces/training.h>
#include <tessera/parallel/replicas/data_parallel.h>
#include <tessera/train/core/checkpoint_manager.h>
#include <tessera/train/core/run_plan.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tessera::data {
class Sampler;
}
namespace tessera::faces {
class ModelFeatures;
}

namespace tessera {

/// Settings with their origins: values.optimization.learning_rate and so on.
struct TrainingArguments : config::Resolved {
  /// `flags`: {"--learning_rate", "1e-3", ...}; `defaults`: the program's defaults unless flags or environment override
  /// them, as {"--learning_rate=1e-3", ...}. Throws InputError with all problems. Ignores the launcher's --local-rank.
  explicit TrainingArguments(std::vector<std::string> flags = {}, const std::vector<std::string>& defaults = {});
  TrainingArguments(int argc, char** argv, const std::vector<std::string>& defaults = {})
      : TrainingArguments(std::vector<std::string>(argv + 1, argv + argc), defaults) {}
};

using TensorBatch = std::vector<at::Tensor>;  ///< a batch read from a RowSource, on the device
/// Metrics by name: "loss", "eval_accuracy".
using Metrics = std::map<std::string, double>;

/// The mean loss of the batch over the items that TrainerOptions::loss_count counts, one element; called in the
/// configured precision, from several threads under DataParallel.
using LossFunction = std::function<at::Tensor(torch::nn::Module&, const TensorBatch&)>;
/// Wraps a function that takes your own module class into one that takes torch::nn::Module.
template <class M, class Function>
auto loss_of(Function function) {
  return [function = std::move(function)](torch::nn::Module& module, const TensorBatch& batch) -> at::Tensor {
    return function(dynamic_cast<M&>(module), batch);
  };
}

/// Progress of a run as seen by callbacks (transformers' TrainerState).
struct TrainerState {
  std::int64_t global_step = 0, max_steps = 0;  ///< optimizer steps done, and at the end of the run
  double epoch = 0, num_train_epochs = 0;       ///< passes over the data done (a fraction), and at the end of the run
  std::vector<Value> log_history;               ///< as in trainer_state.json
  // Best of the evaluations so far, if a best model is requested:
  std::optional<double> best_metric = {};
  std::int64_t best_global_step = -1;      ///< -1: none recorded yet
  std::string best_model_checkpoint = {};  ///< checkpoint of the best step; empty: none is saved
  bool is_world_process_zero = true;       ///< this process has rank 0
};

/// Requests of callbacks, which must be the same on every rank; the Trainer clears a request once it has fulfilled it.
struct TrainerControl {
  /// After this step, end training, or write a log line, an evaluation or a checkpoint, regardless of the plan.
  bool should_training_stop = false, should_log = false, should_evaluate = false, should_save = false;
};

/// Called on every rank.
class TrainerCallback {
 public:
  virtual ~TrainerCallback() = default;
  virtual void on_train_begin(const TrainerState&, TrainerControl&) {}  ///< before the first step
  virtual void on_step_begin(const TrainerState&, TrainerControl&) {}   ///< before its first forward pass
  virtual void on_step_end(const TrainerState&, TrainerControl&) {}     ///< after the update, which global_step counts
  virtual void on_epoch_end(const TrainerState&, TrainerControl&) {}    ///< after on_step_end() of a pass's last step
  virtual void on_log(const TrainerState&, TrainerControl&, const Metrics& logs) {}  ///< the log line with "epoch"
  /// `metrics`: result of evaluate().
  virtual void on_evaluate(const TrainerState&, TrainerControl&, const Metrics& metrics) {}
  /// The checkpoint is complete. With --async_save that is some steps after it was due: global_step and epoch are those
  /// of the checkpoint.
  virtual void on_save(const TrainerState&, TrainerControl&, const std::string& folder) {}
  virtual void on_train_end(const TrainerState&, TrainerControl&) {}  ///< with the final weights of the training
};

/// The inputs of a Trainer, named like transformers' arguments.
struct TrainerOptions {
  std::shared_ptr<torch::nn::Module> model;           ///< required; is trained in place
  TrainingArguments arguments = TrainingArguments();  ///< default: the environment's settings
  LossFunction loss;                                  ///< required, even if `labels` and `outputs` replace it
  /// [rows, ...] of a batch, for predict(), compute_metrics and label_smoothing_factor.
  std::function<at::Tensor(torch::nn::Module&, const TensorBatch&)> outputs = {};
  /// With --label_smoothing_factor the smoothed cross-entropy of `outputs` [..., classes] and these labels [...]
  /// replaces `loss`, also in evaluations, as in Hugging Face's Trainer (faces/smoothed_loss.h; -100: not counted).
  /// Empty: the last tensor of the batch. (For a next-token model, these functions must shift outputs and labels.) Also
  /// used by loss_count.
  std::function<at::Tensor(const TensorBatch&)> labels = {};
  /// Number of items (usually tokens with a label) over which `loss` of this batch is a mean. With it a step's loss and
  /// gradients are means over the items of all micro-batches and ranks, however these are divided, like transformers'
  /// num_items_in_batch; with --average_tokens_across_devices false, means over each rank's items, averaged over the
  /// ranks. Empty: the number of `labels` that are not -100; without `labels` and smoothing, all micro-batches have the
  /// same weight. (Evaluations weigh batches by their rows, as in transformers.)
  std::function<std::int64_t(const TensorBatch&)> loss_count = {};
  std::optional<RowSource> train_dataset = {}, eval_dataset = {};  ///< required by train() and evaluate()
  /// Computes metrics from all outputs and all rows of the evaluated data; their names get the prefix "eval_".
  std::function<Metrics(const at::Tensor& outputs, const TensorBatch& rows)> compute_metrics = {};
  std::vector<std::shared_ptr<TrainerCallback>> callbacks = {};  ///< called in this order
  /// How your own module is cut with --tp_size (parallel/tensor_parallel.h); our models have their own plans.
  layout::TensorPlan tp_plan = {};
  torch::optim::Optimizer* optimizer = nullptr;  ///< your own; empty: --optim, without decay for biases and norms
  /// One process with several devices (or, on the CPU, replicas > 1): their replicas share the batch,
  /// per_device_train_batch_size rows each. If not set, CUDA uses all devices, as Hugging Face's Trainer does; the CPU
  /// uses one.
  std::optional<DataParallelOptions> data_parallel = {};
};

/// Result of train().
struct TrainOutput {
  std::int64_t global_step = 0;  ///< steps of the whole run, including those before a resume
  double training_loss = 0;      ///< mean over the steps of this call
  Metrics metrics;               ///< train_runtime, train_samples_per_second, train_steps_per_second, train_loss, epoch
};
/// Result of predict().
struct PredictionOutput {
  at::Tensor predictions;  ///< [rows, ...], on every rank
  Metrics metrics;         ///< test_loss and the metrics of compute_metrics
};

/// All methods except the accessors are collective.
class Trainer {
 public:
  /// Joins the job unless tessera::init() was called. Throws InputError for unsuitable settings.
  explicit Trainer(TrainerOptions options);
  ~Trainer();

  /// Trains from the start, or from --resume_from_checkpoint: a folder, or `last`, the newest complete checkpoint of
  /// --output_dir (a damaged one is set aside with a warning, and the one before it is used, as in `tessera train`).
  /// Writes OUT/checkpoint-N as configured (nothing without --output_dir); the best one is never removed. A checkpoint
  /// that cannot be written (a full disk) is dropped on every rank with a warning on rank 0, earlier checkpoints are
  /// unharmed, and training continues. With --load_best_model_at_end the model has its weights afterwards. Throws
  /// InputError if --metric_for_best_model is not a metric of the evaluations.
  TrainOutput train();
  /// Returns eval_loss, eval_runtime, eval_samples_per_second, epoch and the metrics of compute_metrics. Throws
  /// InputError without a dataset.
  Metrics evaluate(const std::optional<RowSource>& rows = {});
  PredictionOutput predict(const RowSource& rows);  ///< outputs and metrics of these rows, on every rank
  /// Writes FOLDER/model.safetensors with whole weights; empty: --output_dir.
  void save_model(const std::string& folder = "");

  /// Adds a callback, called after the existing ones.
  void add_callback(std::shared_ptr<TrainerCallback> callback) { options_.callbacks.push_back(std::move(callback)); }
  bool is_fsdp_enabled() const;       ///< by --fsdp or the strategies that it implies
  bool is_deepspeed_enabled() const;  ///< by --deepspeed or --zero_stage
  bool is_world_process_zero() const { return state_.is_world_process_zero; }  ///< rank 0, which writes the log
  /// Sets save_state_dict_type: FULL_STATE_DICT, SHARDED_STATE_DICT or LOCAL_STATE_DICT, or its own words (full,
  /// sharded, local). Throws InputError for others. Applies to later checkpoints: with full, rank 0 writes whole
  /// tensors as the others send their parts, and the step continues once that is done; otherwise (the default) every
  /// rank writes what it holds, while the next steps run (--async_save). Any number of ranks and any strategy reads
  /// both. save_model() always writes whole weights, without switching.
  void set_state_dict_type(const std::string& type);
  const TrainerState& state() const { return state_; }  ///< progress of the training
  TrainerControl& control() { return control_; }        ///< for requests from outside callbacks
  int n_gpu() const { return data_parallel_ ? data_parallel_->replicas() : 1; }  ///< replicas of this process
  const TrainingArguments& arguments() const { return options_.arguments; }      ///< including later changes
  faces::Training& training() { return *training_; }                             ///< the module under training

 private:
  struct Evaluated {
    double loss = 0;
    at::Tensor outputs;
  };

  struct Course;
  Course begin_course(const RowSource& rows);
  void take_step(Course& course);
  void after_step(Course& course);
  TensorBatch read(const RowSource& source, const std::vector<std::int64_t>& rows) const;
  at::Tensor mean_loss(torch::nn::Module& module, const TensorBatch& batch) const;
  bool counts_items() const;
  std::int64_t items_of(const TensorBatch& batch) const;
  at::Tensor loss_of_batch(const TensorBatch& batch);
  struct Micro {
    TensorBatch batch;
    std::int64_t first_row = 0;  ///< in the sample order
    bool counts = true;          ///< false: substitute rows, so that each rank runs the model equally often
  };
  Micro read_micro(const data::Sampler& sampler, const train::RunPlan& plan, int rank, std::int64_t micro) const;
  Micro stand_in(const data::Sampler& sampler, const train::RunPlan& plan) const;
  double train_step(const data::Sampler& sampler, const train::RunPlan& plan);
  Evaluated run_over(const RowSource& rows, bool with_outputs);
  Metrics evaluate(const RowSource& rows, const std::string& prefix, at::Tensor* outputs);
  bool evaluate_step();
  void log(Metrics metrics);
  void check_evaluations() const;
  void save(const train::RunPlan& plan);
  void note_best();
  void saved(const train::SaveOutcome& outcome);
  template <class... Parameters, class... Arguments>
  void call(void (TrainerCallback::*event)(const TrainerState&, TrainerControl&, Parameters...),
            const Arguments&... arguments) {
    for (const auto& callback : options_.callbacks) (*callback.*event)(state_, control_, arguments...);
  }

  TrainerOptions options_;
  std::unique_ptr<faces::ModelFeatures> features_;
  std::unique_ptr<faces::Training> training_;
  std::optional<DataParallel<torch::nn::Module>> data_parallel_;
  std::optional<train::CheckpointManager> checkpoints_;  // set when train() has started
  double saving_epoch_ = 0;                              // when the checkpoint being written was due
  TrainerState state_;
  TrainerControl control_;
};

}  // namespace tessera
