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
/// What the ranks divide, the precision and so on are settings: of the environment (what `accelerate launch` or
/// `tessera launch --config_file` put there), and of AcceleratorOptions::arguments, which are flags of `tessera train`.

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
  bool split_batches = false;                    ///< loaders' batches are those of all ranks together, and are cut
  bool even_batches =
      true;  ///< every rank gets as many batches (BatchPlan); false: training needs join_uneven_inputs()
  bool sync_with_dataloader = true;  ///< the last batch of a loader ends a step, whatever the count
  /// false: schedules step whenever they are told to, once (see PreparedScheduler)
  bool step_scheduler_with_optimizer = true;
  std::string project_dir = {};  ///< where save_state() without a folder writes: PROJECT_DIR/checkpoints/checkpoint_N
  std::int64_t total_limit = 0;  ///< at most so many of those; the oldest go. 0: all stay
  std::vector<std::string> log_with = {};  ///< tensorboard | jsonl: where log() writes, see init_trackers()
  std::vector<std::shared_ptr<Tracker>> trackers = {};  ///< your own, besides
  std::string logging_dir = {};                         ///< where log_with writes; empty: project_dir
  /// How a module of your own is cut with --tp_size (parallel/tensor_parallel.h); our models know it themselves. It
  /// counts for every model that is prepared.
  layout::TensorPlan tp_plan = {};
  std::vector<std::string> arguments =
      {};  ///< further settings: {"--fsdp", "full_shard", "--fsdp_config", "fsdp.json"}
};

/// One of this library's optimizers (optim/by_name.h), fused over shards.
struct OptimizerSettings {
  std::string name = "adamw";          ///< a word of --optim
  double lr = 1e-3, weight_decay = 0;  ///< the decay is that of all parameters, biases and norms included
  std::string arguments = {};          ///< "beta2=0.95,eps=1e-6"
};

/// accelerate.utils.set_seed: seeds LibTorch's generators of all devices; device_specific: each process another one,
/// seed + its rank. deterministic: operations without a deterministic algorithm throw from now on.
void set_seed(std::int64_t seed, bool device_specific = false, bool deterministic = false);

/// What divides the work, in Accelerate's words. deepspeed: a ZeRO strategy; fsdp: another one that shards.
enum class DistributedType { no, multi_cpu, multi_gpu, fsdp, deepspeed };

/// What save_state() keeps of an object of yours (register_for_checkpointing).
class Stateful {
 public:
  virtual ~Stateful() = default;
  virtual Value state() const = 0;                  ///< called on every rank by save_state(); rank 0's is written
  virtual void load_state(const Value& state) = 0;  ///< what state() gave, read from the folder; called on every rank
};

/// Accelerate's face: prepares a module, optimizers and loaders for the ranks of the job; the loop stays yours.
class Accelerator {
 public:
  /// Joins the job unless tessera::init() was called. Throws InputError for settings that do not hold, and for those
  /// that only prepare() can give (an optimizer or a schedule in DeepSpeed's JSON). Its gradient_clipping acts at every
  /// step, instead of what clip_grad_norm_() is told; "auto" is 1, as Accelerate fills in.
  explicit Accelerator(AcceleratorOptions options = {});

  /// Models (std::shared_ptr<M>, or a TORCH_MODULE holder), their optimizers (torch::optim::Optimizer&, of the model's
  /// parameters, or OptimizerSettings), loaders (DataLoader) and schedules (optim::Schedule, or
  /// torch::optim::LRScheduler& of that optimizer), in any order; in the same order come back what the loop uses
  /// instead. The n-th optimizer and the n-th schedule of a call are the n-th model's. Collective. Rank 0's weights are
  /// everyone's. May be called again, with further models. Throws InputError for a model without optimizer or an
  /// optimizer or a schedule without model. With fp16 all optimizers follow one loss scale, which each of their steps
  /// adapts, as Accelerate's scaler; gradients that another optimizer still has to apply follow a change of it.
  template <class First, class Second, class... More>
  auto prepare(First&& first, Second&& second, More&&... more) {
    Given given;
    take(given, first);
    take(given, second);
    (take(given, more), ...);
    Prepared prepared = prepare_all(std::move(given));
    return std::tuple{give(prepared, first), give(prepared, second), give(prepared, more)...};
  }
  /// A loader alone (for evaluation).
  DataLoader prepare(const DataLoader& loader) { return prepare_one(loader); }
  /// A schedule alone, made when the prepared loader's size() is known. It is that of the first prepared model that has
  /// none. Throws InputError when there is none.
  PreparedScheduler prepare(const optim::Schedule& schedule);
  PreparedScheduler prepare(torch::optim::LRScheduler& scheduler);
  DataLoader prepare_data_loader(const DataLoader& loader) { return prepare_one(loader); }  ///< as prepare(loader)
  PreparedScheduler prepare_scheduler(const optim::Schedule& schedule) { return prepare(schedule); }
  PreparedScheduler prepare_scheduler(torch::optim::LRScheduler& scheduler) { return prepare(scheduler); }

  /// The scope of one micro-batch, forward and backward: whether it ends a step is decided here.
  class Scope {
   public:
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() noexcept(false);  ///< what ends a scope may be collective, and so may fail

   private:
    friend class Accelerator;
    explicit Scope(std::function<void()> leave = {}) : leave_(std::move(leave)) {}
    std::function<void()> leave_;
  };
  [[nodiscard]] Scope accumulate();  ///< throws InputError before prepare()
  /// The same: gradients of all models are in sync at the same time, whichever are named.
  template <class M, class... More>
  [[nodiscard]] Scope accumulate(const PreparedModel<M>&, const PreparedModel<More>&...) {
    return accumulate();
  }
  /// Gradients are kept on the rank while it lives, without counting (see Sharded::NoSync).
  [[nodiscard]] Scope no_sync() { return expecting(false); }
  template <class M>
  [[nodiscard]] Scope no_sync(const PreparedModel<M>&) {
    return no_sync();
  }
  /// Backwards while it lives reduce gradients, those that no_sync() has kept included.
  template <class M>
  [[nodiscard]] Scope trigger_sync_in_backward(const PreparedModel<M>&) {
    return expecting(true);
  }
  bool sync_gradients() const { return state_->sync_gradients; }              ///< the micro-batch in hand ends its step
  std::int64_t gradient_accumulation_steps() const { return accumulation_; }  ///< micro-batches of a step

  /// While it lives, passes that begin let every rank take part in all rounds, whatever the data: one whose rows are
  /// used up gets a batch that stands in (rows from the start of the pass, see has_joined()). Its loss counts as zero
  /// in backward(), its rows are left out by gather_for_metrics(). So gradients are those of torch's Join: sums over
  /// the ranks that have a batch, divided by the number of all. Works with every strategy. even_batches: instead of the
  /// Accelerator's while it lives; where true, nothing is uneven.
  [[nodiscard]] Scope join_uneven_inputs(std::optional<bool> even_batches = {});
  template <class M>
  [[nodiscard]] Scope join_uneven_inputs(const PreparedModel<M>&, std::optional<bool> even_batches = {}) {
    return join_uneven_inputs(even_batches);
  }
  /// The batch in hand is one that stands in: leave it out of sums of your own.
  bool has_joined() const { return state_->stand_in(); }

  /// The precision of mixed_precision for what is computed while it lives, outside of the models' forward, too.
  [[nodiscard]] nn::Autocast autocast() const {
    return nn::Autocast(train::training_precision(*config_), device().type(), /*wide=*/true);
  }
  /// loss / gradient_accumulation_steps, times the loss scale; backward. Throws InputError where even_batches = false
  /// leaves other ranks without a batch, so that they would be waited for.
  void backward(const at::Tensor& loss);
  /// The norm over all ranks before clipping, once a step (0 between), of all models' gradients together, or of one
  /// model's. The scaling itself happens in optimizer.step().
  double clip_grad_norm_(double max_norm);
  template <class M>
  double clip_grad_norm_(const PreparedModel<M>& model, double max_norm) {
    return sync_gradients() ? model.training().clip(max_norm) : 0;
  }
  /// Under FSDP and ZeRO refused by Accelerate; works here. Gradients of all models, or of one. With fp16 collective:
  /// gradients that overflow are left as they are, so that the step is skipped.
  void clip_grad_value_(double limit);
  template <class M>
  void clip_grad_value_(const PreparedModel<M>& model, double limit) {
    if (sync_gradients()) model.training().clip_values(limit);
  }
  /// The last step of one of the optimizers was left out, since fp16 gradients overflowed.
  bool optimizer_step_was_skipped() const;

  /// Tensors of all ranks joined along dimension 0 (their rows may differ in number); numbers become a vector. With
  /// --tp_size of one rank of each tp group, here and in the next four: the others have the same rows. Collective.
  at::Tensor gather(const at::Tensor& tensor) const;
  std::vector<at::Tensor> gather(const std::vector<at::Tensor>& tensors) const;
  /// Lists of all ranks in one, in the order of the ranks (accelerate.utils.gather_object): what JSON holds, or texts.
  /// They may differ in length. Collective.
  std::vector<Value> gather_object(const std::vector<Value>& objects) const;
  std::vector<std::string> gather_object(const std::vector<std::string>& texts) const;
  /// The same without the rows that only fill the last round of the loader in use, or stand in.
  at::Tensor gather_for_metrics(const at::Tensor& tensor) const;
  /// The same of several tensors.
  std::vector<at::Tensor> gather_for_metrics(const std::vector<at::Tensor>& tensors) const;
  /// Filled up with `pad_index` along `dim`, at its end or before its beginning, to the longest of all ranks, so that
  /// tensors may be gathered that differ there. dim < 0 counts from the last. A tensor without that dimension stays as
  /// it is. Collective.
  at::Tensor pad_across_processes(const at::Tensor& tensor, std::int64_t dim = 0, double pad_index = 0,
                                  bool pad_first = false) const;
  /// The tensor of one rank, on all; shape and type are the same everywhere. Collective.
  at::Tensor broadcast(const at::Tensor& tensor, int from_process = 0) const;
  /// Sum or mean over ranks, times `scale`. Collective.
  at::Tensor reduce(const at::Tensor& tensor, comm::Reduction op = comm::Reduction::sum, double scale = 1) const;

  /// Weights, optimizers, schedules, loss scale, random numbers, loaders' epochs, registered objects into `folder`
  /// (empty: the next of PROJECT_DIR/checkpoints/checkpoint_N), which is replaced when all of it is on the disk. Every
  /// rank writes its part; fsdp_state_dict_type FULL_STATE_DICT: rank 0 writes whole tensors. Of several models the
  /// second has model_1 and optimizer_1 in its files' names, and so on. Returns the folder. On failure every rank
  /// throws. Collective.
  std::string save_state(const std::string& folder = "");
  /// Restores all that; continues with the same bits when the ranks are as many. Empty: the newest of PROJECT_DIR's.
  /// Throws InputError for a damaged folder, other models, other registered objects, or a torch::optim::LRScheduler
  /// that has taken more steps than were saved, since it cannot be wound back. Collective.
  void load_state(const std::string& folder = "");
  /// `object` must outlive the Accelerator's saves and loads.
  void register_for_checkpointing(Stateful& object) { objects_.push_back(&object); }
  /// Whole weights as model.safetensors, in files of at most max_shard_bytes with an index; rank 0 writes them as the
  /// others send their parts. Of several models one is to be named. Collective.
  void save_model(const std::string& folder, std::int64_t max_shard_bytes = 10'000'000'000);
  template <class M>
  void save_model(const PreparedModel<M>& model, const std::string& folder,
                  std::int64_t max_shard_bytes = 10'000'000'000) {
    save_weights(model.training(), folder, max_shard_bytes);
  }
  /// Whole parameters and buffers by name, on the CPU (docs/faces.md). Strategies that shard parameters: on rank 0, the
  /// others get none, as Accelerate's FSDP; else on every rank. Collective.
  template <class M>
  StateDict get_state_dict(const PreparedModel<M>& model) const {
    return faces::state_dict(model.training());
  }
  /// Writes tensors as a .safetensors file, on the main process; the others do nothing. Throws Error.
  void save(const StateDict& tensors, const std::string& path) const;
  /// Lets go of all that was prepared: models, optimizers, schedules, loaders, and of the handles given. Their memory
  /// goes with the last handle. Weights that a strategy shards are gone then: save them, or Sharded::restore() the
  /// module, before. Other models may be prepared after it. The count of accumulate() begins again.
  template <class... Handles>
  void free_memory(Handles&... handles) {
    (handles.release(), ...);
    forget();
  }
  template <class... Handles>
  void clear(Handles&... handles) {
    free_memory(handles...);
  }

  /// Begins log_with's and your own trackers, on the main process: tensorboard writes an event file, jsonl
  /// metrics.jsonl, into LOGGING_DIR/PROJECT_NAME, with `config` at the beginning. Throws InputError for another name
  /// of a tracker, or without a folder.
  void init_trackers(const std::string& project_name, const Value& config = Value::make_object());
  /// Numbers and texts by name, to all trackers, on the main process; nothing elsewhere, or without trackers. step: the
  /// x of curves; empty: the number of calls before. Throws InputError for values that are neither.
  void log(const Value& values, std::optional<std::int64_t> step = {});
  /// Ends the trackers and leaves the job, as tessera::shutdown() does: nothing collective comes after it. Collective.
  void end_training();

  /// The loader without the first batches of its next pass: they are not even read.
  static DataLoader skip_first_batches(const DataLoader& loader, std::int64_t batches) {
    return loader.skip_first_batches(batches);
  }
  template <class M>
  static M& unwrap_model(const PreparedModel<M>& model) {
    return *model.module();
  }  ///< the module as it was given to prepare()

  /// Who this process is can be asked after end_training(), too.
  int process_index() const { return process_.rank; }
  int local_process_index() const { return process_.local_rank; }            ///< place among the processes of its host
  int num_processes() const { return process_.size; }                        ///< all of the job
  bool is_main_process() const { return process_index() == 0; }              ///< rank 0
  bool is_local_main_process() const { return local_process_index() == 0; }  ///< the first of its host
  bool is_last_process() const { return process_index() == num_processes() - 1; }  ///< the highest rank
  bool use_distributed() const { return num_processes() > 1; }                     ///< there are others
  DistributedType distributed_type() const;                                        ///< what divides the work among them
  c10::Device device() const { return process_.device; }                           ///< where its tensors are
  bool split_batches() const { return options_.split_batches; }            ///< AcceleratorOptions::split_batches
  bool even_batches() const { return options_.even_batches; }              ///< AcceleratorOptions::even_batches
  const std::string& project_dir() const { return options_.project_dir; }  ///< "": none
  const std::string& logging_dir() const {
    return options_.logging_dir.empty() ? options_.project_dir : options_.logging_dir;
  }  ///< where log_with writes
  std::string mixed_precision() const;                  ///< no | fp16 | bf16
  const RunConfig& config() const { return *config_; }  ///< all settings, those of the environment included

  /// `work` on that rank only; it must not be collective.
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
  /// While it lives, rank 0 is first: the others wait at its beginning until rank 0 has left it. Collective.
  [[nodiscard]] Scope main_process_first() const { return goes_first(is_main_process()); }
  /// The same of the first rank of each host.
  [[nodiscard]] Scope local_main_process_first() const { return goes_first(is_local_main_process()); }
  void wait_for_everyone() const { world().group().barrier().wait(); }  ///< collective: returns when all are here
  /// The parts on one line of stdout, by the main process of each host.
  template <class... Parts>
  void print(const Parts&... parts) const {
    if (is_local_main_process()) print_line(concat(parts...));
  }

  /// This rank's part of the items: contiguous, the first ranks have one more when they do not divide. apply_padding:
  /// the shorter ones get the last item once more, so that gather() fits.
  template <class T>
  std::vector<T> split_between_processes(const std::vector<T>& items, bool apply_padding = false) const {
    const auto [begin, end] = share(static_cast<std::int64_t>(items.size()));
    std::vector<T> part(items.begin() + begin, items.begin() + end);
    if (apply_padding && !items.empty() && end - begin < longest_share(static_cast<std::int64_t>(items.size())))
      part.push_back(part.empty() ? items.back() : part.back());
    return part;
  }

  /// Any rank may set it; every rank learns of it at once (and it is cleared) in check_trigger(), which is collective.
  void set_trigger() { trigger_ = true; }
  bool check_trigger();

  /// The training of the index-th model.
  faces::Training& training(std::size_t index = 0) { return *state_->trained().at(index); }

 private:
  /// What one prepare() is given of models, optimizers and schedules.
  struct Given {
    std::vector<std::shared_ptr<torch::nn::Module>> modules;
    std::vector<train::MakeUpdate> updates;
    std::size_t schedules = 0;
  };
  /// What it made of them, and how much of that was given back.
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
  Place rows_of_;  // among the ranks that have other rows
  std::shared_ptr<faces::AcceleratorState> state_ = std::make_shared<faces::AcceleratorState>();
  std::vector<Stateful*> objects_;
  std::vector<std::shared_ptr<Tracker>> trackers_;  // between init_trackers() and end_training(), on the main process
  std::int64_t logged_ = 0;
  bool trigger_ = false;
};

}  // namespace tessera
