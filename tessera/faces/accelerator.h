#pragma once
/// \file
/// Hugging Face Accelerate's face: your own loop, prepared.
///
///   tessera::Accelerator accelerator({.gradient_accumulation_steps = 2});
///   auto [model, optimizer, loader] = accelerator.prepare(net, adamw, data);  // adamw: of net's parameters
///   for (const auto& batch : loader) {
///     const auto scope = accelerator.accumulate();
///     at::Tensor loss = at::cross_entropy_loss(model(batch[0]), batch[1]);
///     accelerator.backward(loss);
///     if (accelerator.sync_gradients()) accelerator.clip_grad_norm_(1.0);
///     optimizer.step();                                                       // these two act once a step
///     optimizer.zero_grad();
///   }
///
/// Several models, each with its optimizer (a generator and a discriminator, a model and its critic):
///
///   auto [a, b, optimizer_a, optimizer_b, loader] = accelerator.prepare(net_a, net_b, adamw_a, adamw_b, data);
///
/// One thread at a time uses an Accelerator and what it prepared.
///
/// The division over the ranks, the precision and so on are settings: from the environment (set by `accelerate launch`
/// or `tessera launch --config_file`), and from AcceleratorOptions::arguments, which are flags of `tessera train`.

#include <torch/nn/pimpl.h>

#include <tessera/base/log.h>
#include <tessera/comm/world.h>
#include <tessera/faces/loader.h>
#include <tessera/faces/prepared.h>
#include <tessera/faces/state_dict.h>
#include <tessera/faces/tracker.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera {

/// The arguments of Accelerate's Accelerator, by their names there.
struct AcceleratorOptions {
  std::int64_t gradient_accumulation_steps = 0;  ///< 0: as configured (1)
  std::string mixed_precision = {};              ///< no | fp16 | bf16; empty: as configured
  bool split_batches = false;                    ///< a loader's batch is for all ranks together and is cut
  bool even_batches =
      true;  ///< every rank gets the same number of batches (BatchPlan); false: training needs join_uneven_inputs()
  bool sync_with_dataloader = true;  ///< the last batch of a loader ends a step, regardless of the count
  /// false: each call to a scheduler's step() advances it once (see PreparedScheduler)
  bool step_scheduler_with_optimizer = true;
  std::string project_dir = {};  ///< save_state() without a folder: PROJECT_DIR/checkpoints/checkpoint_N
  std::int64_t total_limit = 0;  ///< maximum number of those checkpoints; the oldest are removed. 0: unlimited
  std::vector<std::string> log_with = {};               ///< tensorboard | jsonl: targets of log(), see init_trackers()
  std::vector<std::shared_ptr<Tracker>> trackers = {};  ///< additional trackers of your own
  std::string logging_dir = {};                         ///< folder for log_with; empty: project_dir
  /// How your own module is cut with --tp_size (parallel/tensor_parallel.h); our models have their own plans. Applies
  /// to every prepared model.
  layout::TensorPlan tp_plan = {};
  std::vector<std::string> arguments =
      {};  ///< further settings: {"--fsdp", "full_shard", "--fsdp_config", "fsdp.json"}
};

/// One of this library's optimizers (optim/by_name.h), fused over shards.
struct OptimizerSettings {
  std::string name = "adamw";          ///< a word of --optim
  double lr = 1e-3, weight_decay = 0;  ///< the decay applies to all parameters, including biases and norms
  std::string arguments = {};          ///< "beta2=0.95,eps=1e-6"
};

/// accelerate.utils.set_seed: seeds LibTorch's generators of all devices; device_specific: with seed + rank on each
/// process. deterministic: makes operations without a deterministic algorithm throw.
void set_seed(std::int64_t seed, bool device_specific = false, bool deterministic = false);

/// How the work is divided, in Accelerate's terms. deepspeed: a ZeRO strategy; fsdp: another sharding strategy.
enum class DistributedType { no, multi_cpu, multi_gpu, fsdp, deepspeed };

/// Interface for your own objects saved by save_state() (register_for_checkpointing).
class Stateful {
 public:
  virtual ~Stateful() = default;
  virtual Value state() const = 0;                  ///< called on every rank; rank 0's result is written
  virtual void load_state(const Value& state) = 0;  ///< called on every rank with state()'s result from the folder
};

/// Accelerate's face: prepares a module, optimizers and loaders for the ranks of the job; the loop stays yours.
class Accelerator {
 public:
  /// Joins the job unless tessera::init() was called. Throws InputError for invalid settings, and for settings that
  /// prepare() must receive instead (an optimizer or a schedule in DeepSpeed's JSON). Its gradient_clipping acts at
  /// every step and overrides clip_grad_norm_(); "auto" is 1, as Accelerate fills it in.
  explicit Accelerator(AcceleratorOptions options = {});

  /// Prepares models (std::shared_ptr<M>, or a TORCH_MODULE holder), their optimizers (torch::optim::Optimizer&, of the
  /// model's parameters, or OptimizerSettings), loaders (DataLoader) and schedules (optim::Schedule, or
  /// torch::optim::LRScheduler& of that optimizer), in any order; returns the objects that the loop uses instead, in
  /// the same order. The n-th optimizer and the n-th schedule of a call belong to the n-th model. Collective. All ranks
  /// get rank 0's weights. May be called again with further models. Throws InputError for a model without optimizer or
  /// an optimizer or a schedule without model. With fp16 all optimizers share one loss scale, which each of their steps
  /// adapts, like Accelerate's scaler; gradients that another optimizer still has to apply are rescaled.
  template <class First, class Second, class... More>
  auto prepare(First&& first, Second&& second, More&&... more) {
    Given given;
    take(given, first);
    take(given, second);
    (take(given, more), ...);
    Prepared prepared = prepare_all(std::move(given));
    return std::tuple{give(prepared, first), give(prepared, second), give(prepared, more)...};
  }
  /// Prepares a loader alone (for evaluation).
  DataLoader prepare(const DataLoader& loader) { return prepare_one(loader); }
  /// Prepares a schedule alone, created once the prepared loader's size() is known. It belongs to the first prepared
  /// model without one. Throws InputError if every model has one.
  PreparedScheduler prepare(const optim::Schedule& schedule);
  PreparedScheduler prepare(torch::optim::LRScheduler& scheduler);
  DataLoader prepare_data_loader(const DataLoader& loader) { return prepare_one(loader); }  ///< as prepare(loader)
  PreparedScheduler prepare_scheduler(const optim::Schedule& schedule) { return prepare(schedule); }
  PreparedScheduler prepare_scheduler(torch::optim::LRScheduler& scheduler) { return prepare(scheduler); }

  /// The scope of one micro-batch, forward and backward: decides whether it ends a step.
  class Scope {
   public:
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() noexcept(false);  ///< ending a scope may be collective, so it may throw

   private:
    friend class Accelerator;
    explicit Scope(std::function<void()> leave = {}) : leave_(std::move(leave)) {}
    std::function<void()> leave_;
  };
  [[nodiscard]] Scope accumulate();  ///< throws InputError before prepare()
  /// Like accumulate(): gradients of all models sync at the same time, whichever models are passed.
  template <class M, class... More>
  [[nodiscard]] Scope accumulate(const PreparedModel<M>&, const PreparedModel<More>&...) {
    return accumulate();
  }
  /// While it exists, gradients are kept on the rank, without counting micro-batches (see Sharded::NoSync).
  [[nodiscard]] Scope no_sync() { return expecting(false); }
  template <class M>
  [[nodiscard]] Scope no_sync(const PreparedModel<M>&) {
    return no_sync();
  }
  /// While it exists, backward passes reduce gradients, including gradients kept by no_sync().
  template <class M>
  [[nodiscard]] Scope trigger_sync_in_backward(const PreparedModel<M>&) {
    return expecting(true);
  }
  bool sync_gradients() const { return state_->sync_gradients; }              ///< the current micro-batch ends its step
  std::int64_t gradient_accumulation_steps() const { return accumulation_; }  ///< micro-batches of a step

  /// While it exists, all ranks take part in all rounds of the passes that start, regardless of the data: a rank whose
  /// rows are used up gets a substitute batch (rows from the start of the pass, see has_joined()). Its loss counts as
  /// zero in backward(), and gather_for_metrics() drops its rows. So gradients equal those of torch's Join: sums over
  /// the ranks that have a batch, divided by the number of all ranks. Works with every strategy. even_batches: replaces
  /// the Accelerator's setting while it exists; if true, nothing is uneven.
  [[nodiscard]] Scope join_uneven_inputs(std::optional<bool> even_batches = {});
  template <class M>
  [[nodiscard]] Scope join_uneven_inputs(const PreparedModel<M>&, std::optional<bool> even_batches = {}) {
    return join_uneven_inputs(even_batches);
  }
  /// The current batch is a substitute: exclude it from your own sums.
  bool has_joined() const { return state_->stand_in(); }

  /// Applies the precision of mixed_precision to computations while it exists, also outside the models' forward.
  [[nodiscard]] nn::Autocast autocast() const {
    return nn::Autocast(train::training_precision(*config_), device().type(), /*wide=*/true);
  }
  /// Divides loss by gradient_accumulation_steps, multiplies it by the loss scale, and runs backward. Throws InputError
  /// if even_batches = false leaves other ranks without a batch, because this rank would wait for them.
  void backward(const at::Tensor& loss);
  /// Returns the gradient norm over all ranks before clipping, of all models together or of one model; 0 unless the
  /// micro-batch ends a step. optimizer.step() does the scaling.
  double clip_grad_norm_(double max_norm);
  template <class M>
  double clip_grad_norm_(const PreparedModel<M>& model, double max_norm) {
    return sync_gradients() ? model.training().clip(max_norm) : 0;
  }
  /// Accelerate refuses this under FSDP and ZeRO; it works here. Clips gradients of all models, or of one. With fp16
  /// the call is collective, and gradients that overflow are left unchanged, so that the step is skipped.
  void clip_grad_value_(double limit);
  template <class M>
  void clip_grad_value_(const PreparedModel<M>& model, double limit) {
    if (sync_gradients()) model.training().clip_values(limit);
  }
  /// Whether the last step of one of the optimizers was skipped because fp16 gradients overflowed.
  bool optimizer_step_was_skipped() const;

  /// Joins the tensors of all ranks along dimension 0 (their row counts may differ); numbers become a vector. With
  /// --tp_size only one rank of each tp group contributes, here and in the next four functions: the others have the
  /// same rows. Collective.
  at::Tensor gather(const at::Tensor& tensor) const;
  std::vector<at::Tensor> gather(const std::vector<at::Tensor>& tensors) const;
  /// Joins the lists of all ranks in rank order (accelerate.utils.gather_object): JSON values, or texts. Lengths may
  /// differ. Collective.
  std::vector<Value> gather_object(const std::vector<Value>& objects) const;
  std::vector<std::string> gather_object(const std::vector<std::string>& texts) const;
  /// Like gather(), without the rows that only fill the last round of the loader in use, and without substitute rows.
  at::Tensor gather_for_metrics(const at::Tensor& tensor) const;
  /// Same for several tensors.
  std::vector<at::Tensor> gather_for_metrics(const std::vector<at::Tensor>& tensors) const;
  /// Pads the tensor with `pad_index` along `dim`, at its end or its beginning, to the greatest length on any rank, so
  /// that tensors of different lengths can be gathered. dim < 0 counts from the last dimension. A tensor without that
  /// dimension is returned unchanged. Collective.
  at::Tensor pad_across_processes(const at::Tensor& tensor, std::int64_t dim = 0, double pad_index = 0,
                                  bool pad_first = false) const;
  /// Returns the tensor of one rank on all ranks; shape and type must be the same everywhere. Collective.
  at::Tensor broadcast(const at::Tensor& tensor, int from_process = 0) const;
  /// Returns the sum or mean over ranks, times `scale`. Collective.
  at::Tensor reduce(const at::Tensor& tensor, comm::Reduction op = comm::Reduction::sum, double scale = 1) const;

  /// Saves weights, optimizers, schedules, loss scale, random numbers, loaders' epochs and registered objects into
  /// `folder` (empty: the next PROJECT_DIR/checkpoints/checkpoint_N), which is replaced once everything is on disk.
  /// Every rank writes its part; with fsdp_state_dict_type FULL_STATE_DICT rank 0 writes whole tensors. With several
  /// models the second one's files are named model_1 and optimizer_1, and so on. Returns the folder. On failure every
  /// rank throws. Collective.
  std::string save_state(const std::string& folder = "");
  /// Restores all of this; on as many ranks, training continues bit-identically. Empty: the newest checkpoint of
  /// PROJECT_DIR. Throws InputError for a damaged folder, other models, other registered objects, or a
  /// torch::optim::LRScheduler that has taken more steps than were saved, since it cannot be rewound. Collective.
  void load_state(const std::string& folder = "");
  /// `object` must outlive the Accelerator's saves and loads.
  void register_for_checkpointing(Stateful& object) { objects_.push_back(&object); }
  /// Saves whole weights as model.safetensors, in files of at most max_shard_bytes with an index; rank 0 writes them as
  /// the others send their parts. With several models, name one. Collective.
  void save_model(const std::string& folder, std::int64_t max_shard_bytes = 10'000'000'000);
  template <class M>
  void save_model(const PreparedModel<M>& model, const std::string& folder,
                  std::int64_t max_shard_bytes = 10'000'000'000) {
    save_weights(model.training(), folder, max_shard_bytes);
  }
  /// Returns whole parameters and buffers by name, on the CPU (docs/faces.md). With strategies that shard parameters
  /// only rank 0 gets them, as with Accelerate's FSDP; otherwise every rank. Collective.
  template <class M>
  StateDict get_state_dict(const PreparedModel<M>& model) const {
    return faces::state_dict(model.training());
  }
  /// Writes tensors as a .safetensors file on the main process; does nothing on the others. Throws Error.
  void save(const StateDict& tensors, const std::string& path) const;
  /// Releases everything prepared (models, optimizers, schedules, loaders) and the given handles. Their memory is freed
  /// with the last handle. Weights that a strategy shards are lost: save them, or call Sharded::restore() on the
  /// module, first. Other models may be prepared afterwards. The count of accumulate() restarts.
  template <class... Handles>
  void free_memory(Handles&... handles) {
    (handles.release(), ...);
    forget();
  }
  template <class... Handles>
  void clear(Handles&... handles) {
    free_memory(handles...);
  }

  /// Starts the trackers of log_with and your own, on the main process: tensorboard writes an event file, jsonl writes
  /// metrics.jsonl, into LOGGING_DIR/PROJECT_NAME, starting with `config`. Throws InputError for an unknown tracker
  /// name, or without a folder.
  void init_trackers(const std::string& project_name, const Value& config = Value::make_object());
  /// Passes numbers and texts by name to all trackers, on the main process; does nothing elsewhere or without trackers.
  /// step: the x coordinate of curves; empty: the number of previous calls. Throws InputError for other kinds of
  /// values.
  void log(const Value& values, std::optional<std::int64_t> step = {});
  /// Ends the trackers and leaves the job, like tessera::shutdown(): no collective call may follow. Collective.
  void end_training();

  /// Returns the loader without the first batches of its next pass, which are not read either.
  static DataLoader skip_first_batches(const DataLoader& loader, std::int64_t batches) {
    return loader.skip_first_batches(batches);
  }
  template <class M>
  static M& unwrap_model(const PreparedModel<M>& model) {
    return *model.module();
  }  ///< the module as passed to prepare()

  /// The process's identity remains available after end_training().
  int process_index() const { return process_.rank; }
  int local_process_index() const { return process_.local_rank; }            ///< index among the processes of its host
  int num_processes() const { return process_.size; }                        ///< all processes of the job
  bool is_main_process() const { return process_index() == 0; }              ///< rank 0
  bool is_local_main_process() const { return local_process_index() == 0; }  ///< the first process of its host
  bool is_last_process() const { return process_index() == num_processes() - 1; }  ///< the highest rank
  bool use_distributed() const { return num_processes() > 1; }                     ///< there is more than one process
  DistributedType distributed_type() const;                                        ///< how the work is divided
  c10::Device device() const { return process_.device; }                           ///< device of its tensors
  bool split_batches() const { return options_.split_batches; }            ///< AcceleratorOptions::split_batches
  bool even_batches() const { return options_.even_batches; }              ///< AcceleratorOptions::even_batches
  const std::string& project_dir() const { return options_.project_dir; }  ///< "": none
  const std::string& logging_dir() const {
    return options_.logging_dir.empty() ? options_.project_dir : options_.logging_dir;
  }  ///< folder for log_with
  std::string mixed_precision() const;                  ///< no | fp16 | bf16
  const RunConfig& config() const { return *config_; }  ///< all settings, including those of the environment

  /// Runs `work` on that rank only; it must not be collective.
  void on_main_process(const std::function<void()>& work) const { on_process(0, work); }
  void on_local_main_process(const std::function<void()>& work) const {
    if (is_local_main_process()) work();
  }
  void on_last_process(const std::function<void()>& work) const { on_process(num_processes() - 1, work); }
  void on_process(int index, const std::function<void()>& work) const {
    if (process_index() == index) work();
  }
  void on_local_process(int local_index, const std::function<void()>& work) const {
    if (local_process_index() == local_index) work();
  }
  /// While it exists, rank 0 goes first: the others wait at its start until rank 0 has left it. Collective.
  [[nodiscard]] Scope main_process_first() const { return goes_first(is_main_process()); }
  /// Like main_process_first(), with the first rank of each host.
  [[nodiscard]] Scope local_main_process_first() const { return goes_first(is_local_main_process()); }
  void wait_for_everyone() const { world().group().barrier().wait(); }  ///< a barrier; collective
  /// Prints the parts on one line of stdout, from the main process of each host.
  template <class... Parts>
  void print(const Parts&... parts) const {
    if (is_local_main_process()) print_line(concat(parts...));
  }

  /// Returns this rank's part of the items, which is contiguous; the first ranks get one more if the items do not
  /// divide evenly. apply_padding: repeats the last item in the shorter parts, so that gather() works.
  template <class T>
  std::vector<T> split_between_processes(const std::vector<T>& items, bool apply_padding = false) const {
    const auto [begin, end] = share(static_cast<std::int64_t>(items.size()));
    std::vector<T> part(items.begin() + begin, items.begin() + end);
    if (apply_padding && !items.empty() && end - begin < longest_share(static_cast<std::int64_t>(items.size())))
      part.push_back(part.empty() ? items.back() : part.back());
    return part;
  }

  /// Any rank may set it; every rank sees it (and it is cleared) in check_trigger(), which is collective.
  void set_trigger() { trigger_ = true; }
  bool check_trigger();

  /// The training of the index-th model.
  faces::Training& training(std::size_t index = 0) { return *state_->trained().at(index); }

 private:
  /// The models, optimizers and schedules passed to one prepare().
  struct Given {
    std::vector<std::shared_ptr<torch::nn::Module>> modules;
    std::vector<train::MakeUpdate> updates;
    std::size_t schedules = 0;
  };
  /// The results, and how many of them were returned so far.
  struct Prepared {
    std::vector<std::shared_ptr<faces::PreparedTraining>> trainings;
    std::size_t models = 0, optimizers = 0;
  };
  template <class M>
  void take(Given& given, const std::shared_ptr<M>& module) const {
    given.modules.push_back(module);
  }
  template <class M>
  void take(Given& given, const torch::nn::ModuleHolder<M>& holder) const {
    given.modules.push_back(holder.ptr());
  }
  void take(Given& given, torch::optim::Optimizer& optimizer) const {
    given.updates.push_back(train::torch_update(optimizer));
  }
  void take(Given& given, const OptimizerSettings& settings) const;
  void take(Given&, const DataLoader&) const {}
  void take(Given& given, const optim::Schedule& schedule) const;
  void take(Given& given, torch::optim::LRScheduler&) const { ++given.schedules; }
  Prepared prepare_all(Given given);

  template <class M>
  PreparedModel<M> give(Prepared& prepared, const std::shared_ptr<M>& module) const {
    return PreparedModel<M>(module, prepared.trainings[prepared.models++]);
  }
  template <class M>
  PreparedModel<M> give(Prepared& prepared, const torch::nn::ModuleHolder<M>& holder) const {
    return give(prepared, holder.ptr());
  }
  PreparedOptimizer give(Prepared& prepared, const torch::optim::Optimizer&) const { return next_optimizer(prepared); }
  PreparedOptimizer give(Prepared& prepared, const OptimizerSettings&) const { return next_optimizer(prepared); }
  PreparedOptimizer next_optimizer(Prepared& prepared) const {
    return PreparedOptimizer(state_, prepared.trainings[prepared.optimizers++]);
  }
  DataLoader give(Prepared&, const DataLoader& loader) { return prepare_one(loader); }
  PreparedScheduler give(Prepared& prepared, const optim::Schedule& schedule) const;
  PreparedScheduler give(Prepared& prepared, torch::optim::LRScheduler& scheduler) const;
  std::shared_ptr<faces::PreparedTraining> next_scheduled(const Prepared& prepared) const;
  DataLoader prepare_one(const DataLoader& loader);
  static void save_weights(faces::Training& training, const std::string& folder, std::int64_t max_shard_bytes);

  const comm::Group& rows_group() const;
  Scope expecting(bool step);
  Scope goes_first(bool first) const;
  void forget();
  std::pair<std::int64_t, std::int64_t> share(std::int64_t items) const;
  std::int64_t longest_share(std::int64_t items) const { return (items + rows_of_.size - 1) / rows_of_.size; }
  static void print_line(const std::string& line);
  std::string checkpoints_folder() const;

  AcceleratorOptions options_;
  std::shared_ptr<RunConfig> config_;
  std::int64_t accumulation_ = 1;
  struct Process {
    int rank = 0, local_rank = 0, size = 1;
    c10::Device device = c10::Device(c10::DeviceType::CPU);
  };
  Process process_;
  struct Place {
    int rank = 0, size = 1;
  };
  faces::TrainingRanks ranks_;
  Place rows_of_;  // this process among the ranks with different rows
  std::shared_ptr<faces::AcceleratorState> state_ = std::make_shared<faces::AcceleratorState>();
  std::vector<Stateful*> objects_;
  std::vector<std::shared_ptr<Tracker>> trackers_;  // between init_trackers() and end_training(), on the main process
  std::int64_t logged_ = 0;
  bool trigger_ = false;
};

}  // namespace tessera
