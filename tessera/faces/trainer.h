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
/// Which rows a step takes, the schedule, when it logs, evaluates and saves are those of `tessera train`
/// (train/core/run_plan.h). The evaluations of train() also find the best model (train/core/best_model.h:
/// --metric_for_best_model may be any metric of theirs) and lower the rate of reduce_lr_on_plateau.

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
  /// `flags`: {"--learning_rate", "1e-3", ...}; `defaults`: what the program wants unless they, or the environment, say
  /// otherwise, as
  /// {"--learning_rate=1e-3", ...}. Throws InputError with all problems. The launcher's --local-rank is passed over.
  explicit TrainingArguments(std::vector<std::string> flags = {}, const std::vector<std::string>& defaults = {});
  TrainingArguments(int argc, char** argv, const std::vector<std::string>& defaults = {})
      : TrainingArguments(std::vector<std::string>(argv + 1, argv + argc), defaults) {}
};

using TensorBatch = std::vector<at::Tensor>;  ///< what a RowSource reads, on the device
/// Figures by name: "loss", "eval_accuracy".
using Metrics = std::map<std::string, double>;

/// The mean loss of the batch over what TrainerOptions::loss_count counts, one element; called in the precision of the
/// arguments, from several threads under DataParallel.
using LossFunction = std::function<at::Tensor(torch::nn::Module&, const TensorBatch&)>;
/// A function of one's own module class as one of torch::nn::Module.
template <class M, class Function>
auto loss_of(Function function) {
  return [function = std::move(function)](torch::nn::Module& module, const TensorBatch& batch) -> at::Tensor {
    return function(dynamic_cast<M&>(module), batch);
  };
}

/// Where a training is, as callbacks see it (transformers' TrainerState).
struct TrainerState {
  std::int64_t global_step = 0, max_steps = 0;  ///< optimizer steps done, and at the end of the run
  double epoch = 0, num_train_epochs = 0;       ///< passes over the data done (a fraction), and at the end of the run
  std::vector<Value> log_history;               ///< as in trainer_state.json
  // Of the evaluations so far, when a best model is asked for:
  std::optional<double> best_metric = {};
  std::int64_t best_global_step = -1;      ///< -1: none counted yet
  std::string best_model_checkpoint = {};  ///< the checkpoint of a best step; empty: none is saved
  bool is_world_process_zero = true;       ///< this process has rank 0
};

/// What callbacks may ask for, on every rank alike; the Trainer clears it when it has done so.
struct TrainerControl {
  /// After this step training ends, or a log line, an evaluation or a checkpoint is made, whatever the plan says.
  bool should_training_stop = false, should_log = false, should_evaluate = false, should_save = false;
};

/// Called on every rank.
class TrainerCallback {
 public:
  virtual ~TrainerCallback() = default;
  virtual void on_train_begin(const TrainerState&, TrainerControl&) {}  ///< before the first step
  virtual void on_step_begin(const TrainerState&, TrainerControl&) {}   ///< before its first forward pass
  virtual void on_step_end(const TrainerState&, TrainerControl&) {}   ///< after the update: global_step counts the step
  virtual void on_epoch_end(const TrainerState&, TrainerControl&) {}  ///< after on_step_end() of a pass's last step
  virtual void on_log(const TrainerState&, TrainerControl&, const Metrics& logs) {}  ///< the log line, "epoch" too
  /// `metrics`: what evaluate() returns.
  virtual void on_evaluate(const TrainerState&, TrainerControl&, const Metrics& metrics) {}
  /// The checkpoint is there. With --async_save that is some steps after it was due: global_step and epoch are the
  /// checkpoint's.
  virtual void on_save(const TrainerState&, TrainerControl&, const std::string& folder) {}
  virtual void on_train_end(const TrainerState&, TrainerControl&) {}  ///< with the weights that the training leaves
};

/// What a Trainer needs, by the names of transformers' arguments.
struct TrainerOptions {
  std::shared_ptr<torch::nn::Module> model;           ///< must be given; is trained in place
  TrainingArguments arguments = TrainingArguments();  ///< the default: what the environment says
  LossFunction loss;                                  ///< must be given, also where `labels` and `outputs` replace it
  /// [rows, ...] of a batch, for predict(), compute_metrics and label_smoothing_factor.
  std::function<at::Tensor(torch::nn::Module&, const TensorBatch&)> outputs = {};
  /// With --label_smoothing_factor the smoothed cross-entropy of `outputs` [..., classes] and these labels [...] takes
  /// the place of `loss`, in evaluations, too, as in Hugging Face's (faces/smoothed_loss.h; -100: not counted).
  /// Empty: the last tensor of the batch. (A model of the next token shifts the two in these functions.) loss_count
  /// counts them, too.
  std::function<at::Tensor(const TensorBatch&)> labels = {};
  /// How many items (tokens with a label, as a rule) `loss` of this batch is the mean of. With it a step's loss and
  /// gradients are means over the items of all micro-batches and ranks, however these cut them, as transformers'
  /// num_items_in_batch makes them; with --average_tokens_across_devices false, means over each rank's items, and the
  /// mean of these over ranks. Empty: the number of `labels` that are not -100; without `labels` and smoothing, all
  /// micro-batches count alike. (Evaluations weigh batches by their rows, as transformers' do.)
  std::function<std::int64_t(const TensorBatch&)> loss_count = {};
  std::optional<RowSource> train_dataset = {}, eval_dataset = {};  ///< what train() and evaluate() need
  /// Computes metrics of all outputs and all rows of the evaluated data; their names get the prefix "eval_".
  std::function<Metrics(const at::Tensor& outputs, const TensorBatch& rows)> compute_metrics = {};
  std::vector<std::shared_ptr<TrainerCallback>> callbacks = {};  ///< called in this order
  /// How a module of your own is cut with --tp_size (parallel/tensor_parallel.h); our models know it themselves.
  layout::TensorPlan tp_plan = {};
  torch::optim::Optimizer* optimizer = nullptr;  ///< your own; empty: --optim, which decays all but biases and norms
  /// One process with several devices (or, on the CPU, replicas > 1): their replicas share the batch,
  /// per_device_train_batch_size rows each. Without it CUDA takes all devices, as Hugging Face's does; the CPU one.
  std::optional<DataParallelOptions> data_parallel = {};
};

/// What train() gives back.
struct TrainOutput {
  std::int64_t global_step = 0;  ///< steps of the whole run, those before a resume included
  double training_loss = 0;      ///< mean over the steps of this call
  Metrics metrics;               ///< train_runtime, train_samples_per_second, train_steps_per_second, train_loss, epoch
};
/// What predict() gives back.
struct PredictionOutput {
  at::Tensor predictions;  ///< [rows, ...], on every rank
  Metrics metrics;         ///< test_loss and those of compute_metrics
};

/// All methods but the accessors are collective.
class Trainer {
 public:
  /// Joins the job unless tessera::init() was called. Throws InputError for what does not fit.
  explicit Trainer(TrainerOptions options);
  ~Trainer();

  /// From the start, or from --resume_from_checkpoint: a folder, or `last`, the newest whole checkpoint of --output_dir
  /// (a damaged one is set aside with a warning, and the one before it is taken, as in `tessera train`). Writes
  /// OUT/checkpoint-N as the arguments say (nothing without
  /// --output_dir); the best one is never removed. One that cannot be written (a full disk) is dropped on every rank
  /// with a warning of the cause on rank 0, the checkpoints before it are unharmed, and training goes on. With
  /// --load_best_model_at_end the model has its weights afterwards. Throws InputError where --metric_for_best_model
  /// names no metric of the evaluations.
  TrainOutput train();
  /// eval_loss, eval_runtime, eval_samples_per_second, epoch and compute_metrics'. Throws InputError without a data
  /// set.
  Metrics evaluate(const std::optional<RowSource>& rows = {});
  PredictionOutput predict(const RowSource& rows);  ///< outputs and metrics of these rows, on every rank
  /// FOLDER/model.safetensors with whole weights; empty: --output_dir.
  void save_model(const std::string& folder = "");

  /// It is called after those that are there already.
  void add_callback(std::shared_ptr<TrainerCallback> callback) { options_.callbacks.push_back(std::move(callback)); }
  bool is_fsdp_enabled() const;       ///< by --fsdp or the strategies that it names
  bool is_deepspeed_enabled() const;  ///< by --deepspeed or --zero_stage
  bool is_world_process_zero() const { return state_.is_world_process_zero; }  ///< rank 0, which writes the log
  /// Sets the setting save_state_dict_type: FULL_STATE_DICT, SHARDED_STATE_DICT or LOCAL_STATE_DICT, or its own words
  /// (full, sharded, local). Throws InputError for others. Checkpoints from now on: with full, rank 0 writes whole
  /// tensors as the others send their parts, and the step goes on when it has; otherwise (the default) every rank
  /// writes what it holds, while the next steps run (--async_save). Any number of ranks and any strategy reads both.
  /// save_model() writes whole weights in any case: nothing has to be switched before.
  void set_state_dict_type(const std::string& type);
  const TrainerState& state() const { return state_; }  ///< where the training is
  TrainerControl& control() { return control_; }        ///< to ask for something from outside of callbacks
  int n_gpu() const { return data_parallel_ ? data_parallel_->replicas() : 1; }  ///< replicas of this process
  const TrainingArguments& arguments() const { return options_.arguments; }  ///< as set_state_dict_type() has left them
  faces::Training& training() { return *training_; }                         ///< the module under training

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
    bool counts = true;          ///< false: another one's rows, so that each rank runs the model equally often
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
  std::optional<train::CheckpointManager> checkpoints_;  // since train() began
  double saving_epoch_ = 0;                              // when the checkpoint that is being written was due
  TrainerState state_;
  TrainerControl control_;
};

}  // namespace tessera
