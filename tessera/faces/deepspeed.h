#pragma once
/// \file
/// DeepSpeed's face: an engine around your own module, described by DeepSpeed's JSON.
///
///   auto engine = tessera::initialize(model, {.config = "ds.json"});      // a shared_ptr<M>, or a TORCH_MODULE holder
///   for (auto& batch : loader) {
///     at::Tensor loss = at::cross_entropy_loss(engine(batch.x), batch.y); // engine(...) is the module's forward(...)
///     engine.backward(loss);
///     engine.step();                                                      // acts at the accumulation boundary
///   }
///
/// With the data, as deepspeed.initialize gives four things back (the last three belong to the engine and see it live):
///
///   auto [engine, optimizer, loader, scheduler] =
///       tessera::initialize(model, {.config = "ds.json", .training_data = rows});
///
/// One thread at a time uses an engine and what belongs to it.

#include <torch/nn/pimpl.h>

#include <tessera/faces/loader.h>
#include <tessera/faces/state_dict.h>
#include <tessera/faces/training.h>

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

/// What deepspeed.add_config_arguments() adds to a program's arguments.
struct ConfigArguments {
  bool deepspeed = false;             ///< --deepspeed
  std::string deepspeed_config = {};  ///< --deepspeed_config FILE; empty: not given
  int local_rank = -1;                ///< --local_rank N, of launchers that give it; -1: not given
};
/// Takes them out of `arguments` (without the program's name); the program reads what is left. Throws InputError for a
/// name without its value, or a local rank that is no number. Not collective.
ConfigArguments add_config_arguments(std::vector<std::string>& arguments);

/// deepspeed.init_distributed: joins the job, from any launcher's environment, unless that has been done. initialize()
/// calls it, too. Throws what tessera::init() does. Collective.
comm::World& init_distributed(const InitOptions& options = {});

/// The arguments of deepspeed.initialize(), by their names there.
struct InitializeOptions {
  /// DeepSpeed's JSON: a file, or the object itself as text. Empty: `arguments` say it all.
  std::string config = {};
  /// Settings besides, as flags of `tessera train`: {"--seed", "1"}. "auto" in the JSON takes its value from them;
  /// contradictions are errors.
  std::vector<std::string> arguments = {};
  /// Your own optimizer, of the module's parameters (it must outlive the engine), instead of the JSON's.
  torch::optim::Optimizer* optimizer = nullptr;
  /// The learning rate's factor after so many steps, instead of the JSON's scheduler.
  std::function<double(std::int64_t steps)> lr_lambda = {};
  /// Rows of which the engine makes this rank's loader (deepspeed_io), shuffled.
  std::optional<RowSource> training_data = {};
  comm::Group group = {};  ///< the data-parallel ranks; empty: all, or with tensor_parallel those that have other rows
  /// How a module of your own is cut with tensor_parallel.autotp_size in the JSON, or --tp_size among the arguments
  /// (parallel/tensor_parallel.h); our models know it themselves.
  layout::TensorPlan tp_plan = {};
};

namespace faces {

/// The configuration that the options mean, for `ranks` data-parallel ranks: batch sizes are inferred from each other
/// as DeepSpeed does. Throws InputError with all problems, each with file and line.
RunConfig read_configuration(const InitializeOptions& options, int ranks);

/// What an engine trains. Throws InputError when the engine was destroyed, or is gone.
Training& of_engine(const std::weak_ptr<Training>& training);

/// What initialize() gives back beside the engine. The engine takes the steps. Whatever is asked of it after the engine
/// throws InputError.
class EngineHandle {
 protected:
  explicit EngineHandle(std::weak_ptr<Training> training) : training_(std::move(training)) {}
  Training& training() const { return of_engine(training_); }

 private:
  std::weak_ptr<Training> training_;
};

/// The optimizer that initialize() gives back: it is asked and zeroed, the engine steps it.
class EngineOptimizer : public EngineHandle {
 public:
  /// The engine makes it, and is not kept alive by it.
  explicit EngineOptimizer(std::weak_ptr<Training> training) : EngineHandle(std::move(training)) {}
  std::vector<double> learning_rates() const { return training().update().learning_rates(); }  ///< one for each group
  std::int64_t steps() const { return training().update().steps(); }  ///< steps that were taken, not skipped
  double loss_scale() const { return training().loss_factor(); }  ///< with fp16: losses are multiplied by it; else 1
  void zero_grad() { training().zero_grad(); }                    ///< as DeepSpeedEngine::zero_grad()
};

/// The schedule of the learning rate that initialize() gives back: the engine steps it.
class EngineScheduler : public EngineHandle {
 public:
  /// The engine makes it, and is not kept alive by it. `exists`: the configuration or the options name a schedule.
  EngineScheduler(std::weak_ptr<Training> training, bool exists) : EngineHandle(std::move(training)), exists_(exists) {}
  /// False: neither JSON nor options name a schedule (None in Python).
  explicit operator bool() const { return exists_; }
  std::vector<double> get_last_lr() const { return training().update().learning_rates(); }  ///< by parameter group
  std::int64_t steps() const { return training().schedule_steps(); }                        ///< that it has taken

 private:
  bool exists_;
};

/// All of an engine but the module's type. Methods have DeepSpeed's names and meaning. Collective where Sharded's are.
class DeepSpeedEngine {
 public:
  /// What initialize() does, for a module whose type is not known here.
  DeepSpeedEngine(std::shared_ptr<torch::nn::Module> module, const InitializeOptions& options);
  DeepSpeedEngine(DeepSpeedEngine&&) = default;
  DeepSpeedEngine& operator=(DeepSpeedEngine&&) = default;

  /// loss: the mean over this rank's micro-batch, one element. It is divided by gradient_accumulation_steps() here.
  void backward(const at::Tensor& loss);
  /// After every backward. At the boundary: clips, updates the weights (with fp16 unless gradients overflowed), takes
  /// the schedule one step on and clears the gradients; elsewhere it counts.
  void step();
  /// Lets go of all gradients, those that were kept for the end of the step included.
  void zero_grad() { training().zero_grad(); }
  void train(bool on = true) { training().module().train(on); }  ///< the module's mode
  void eval() { train(false); }                                  ///< the mode of evaluation

  /// Whether the micro-batch that is being worked on is the last of its step.
  bool is_gradient_accumulation_boundary() const {
    return boundary_.value_or((micro_steps_ - begun_ + 1) % gradient_accumulation_steps() == 0);
  }
  /// Says so instead of the count, from the next forward on: false, then true before the last backward; step() is then
  /// called once. The loss is still divided by gradient_accumulation_steps().
  void set_gradient_accumulation_boundary(bool is_boundary);
  /// Another number of rows of a step: gradient_accumulation_steps() follows, micro-batches stay as they are. Throws
  /// InputError unless micro-batch times ranks divides it, in the middle of a step, and with deterministic_reduce,
  /// whose order depends on it.
  void set_train_batch_size(std::int64_t train_batch_size);

  /// While it lives, backwards keep their gradients on the rank. Throws InputError at stages 2 and 3, which divide
  /// gradients at once, and for a second one inside; step() throws while one lives.
  class NoSync {
   public:
    explicit NoSync(DeepSpeedEngine& engine);  ///< throws as said above
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DeepSpeedEngine& engine_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

  /// Rows of a step, over all ranks.
  std::int64_t train_batch_size() const {
    return train_micro_batch_size_per_gpu() * gradient_accumulation_steps() * dp_world_size();
  }
  /// Rows of a micro-batch of one rank.
  std::int64_t train_micro_batch_size_per_gpu() const;
  std::int64_t gradient_accumulation_steps() const { return training().accumulation(); }  ///< micro-batches of a step
  double gradient_clipping() const;                                                       ///< 0: no clipping
  int zero_optimization_stage() const;                                                    ///< 0 to 3
  int local_rank() const { return world().local_rank(); }             ///< among the ranks of this host
  int global_rank() const { return training().all().rank(); }         ///< among those that train the module together
  int world_size() const { return training().all().size(); }          ///< all that train the module together
  c10::Device device() const { return training().group().device(); }  ///< where the module is
  int dp_world_size() const { return training().group().size(); }     ///< ranks that have other rows
  bool fp16_enabled() const;                                          ///< float16, with a loss scale
  bool bfloat16_enabled() const;                                      ///< computes in bfloat16

  std::int64_t global_steps() const { return global_steps_; }  ///< steps done, the skipped ones included
  /// Steps of the whole run that were left out, since fp16 gradients overflowed.
  std::int64_t skipped_steps() const { return training().skipped_steps(); }
  std::int64_t micro_steps() const { return micro_steps_; }  ///< calls of step()
  bool was_step_applied() const { return applied_; }  ///< by the last step(): false off the boundary and on overflow
  std::vector<double> get_lr() const { return training().update().learning_rates(); }  ///< one for each parameter group
  double get_global_grad_norm() const { return grad_norm_; }  ///< the norm of the last step, before clipping
  /// What losses are multiplied by in fp16; else 1.
  double loss_scale() const { return training().loss_scale() ? training().loss_scale()->scale() : 1; }

  /// This rank's share of the data: micro-batches of train_micro_batch_size_per_gpu() rows, as many on every rank.
  DataLoader deepspeed_io(RowSource source, bool shuffle = true, bool drop_last = false) const;

  /// Writes FOLDER/TAG (empty: global_stepN), every rank its part (--save_state_dict_type full among the arguments:
  /// rank 0 whole tensors), then its name into FOLDER/latest. All ranks call it, with the same tag. Returns the folder.
  std::string save_checkpoint(const std::string& folder, const std::string& tag = "",
                              const Value& client_state = Value::make_object());
  /// What load_checkpoint() has found.
  struct Loaded {
    std::string path;    ///< the folder that was read
    Value client_state;  ///< what save_checkpoint() was given
  };
  /// What is restored besides the weights.
  struct LoadOptions {
    bool load_optimizer_states = true;  ///< and schedule, loss scale, counts of steps
    bool load_random_states = true;     ///< continues with those of the checkpoint
  };
  /// TAG empty: what FOLDER/latest names; there is none: nullopt, with a warning. The number of ranks and the ZeRO
  /// stage may differ from those that saved. All ranks call it.
  std::optional<Loaded> load_checkpoint(const std::string& folder, const std::string& tag, const LoadOptions& options);
  std::optional<Loaded> load_checkpoint(const std::string& folder, const std::string& tag = "") {
    return load_checkpoint(folder, tag, {});
  }
  /// FOLDER/model.safetensors: whole weights, whatever the stage (zero_to_fp32.py is not needed). All ranks call it.
  void save_model(const std::string& folder);
  /// Whole parameters and buffers by name, in fp32, on the CPU: on rank 0 at stage 3, else on every rank. All ranks
  /// call it.
  StateDict module_state_dict() const { return state_dict(training()); }
  /// Ends the engine: the module has its whole parameters again and may be used without it; whatever is asked of the
  /// engine afterwards throws InputError. All ranks call it.
  void destroy();

  /// What updates the weights: learning rates and states.
  train::Update& optimizer() { return training().update(); }
  Sharded& sharded() { return training().sharded(); }  ///< the engine around the module
  /// Throws InputError after destroy().
  faces::Training& training() const;
  /// This rank's loader of InitializeOptions::training_data; without that, reading it throws InputError.
  DataLoader& training_dataloader() { return loader_; }
  EngineScheduler lr_scheduler() const { return EngineScheduler(training_, scheduled_); }  ///< false: there is none

 protected:
  EngineOptimizer optimizer_handle() const { return EngineOptimizer(training_); }

 private:
  bool scheduled_ = false;
  std::shared_ptr<Training> training_;  // the engine alone owns it; handles ask whether it is there
  DataLoader loader_;
  bool inside_no_sync_ = false;
  std::optional<bool> boundary_;
  std::int64_t begun_ = 0;  // micro-steps before the count towards a step began
  std::int64_t micro_steps_ = 0, global_steps_ = 0;
  double grad_norm_ = 0;
  bool applied_ = false;
};

}  // namespace faces

/// An engine for modules of type M.
template <class M>
class Engine : public faces::DeepSpeedEngine {
 public:
  /// initialize() makes it; throws what it throws. Collective.
  Engine(std::shared_ptr<M> module, const InitializeOptions& options)
      : DeepSpeedEngine(module, options), module_(std::move(module)) {}

  /// module.forward(...), in the precision of the configuration. bf16: its weights are bf16 (the optimizer's are fp32),
  /// and so do floating-point tensors become that go in; on processors without instructions for it both are fp32. A
  /// tensor that comes out in fp16 or bf16 becomes fp32.
  template <class... Arguments>
  auto forward(Arguments&&... arguments) {
    return training().forward(*module_, std::forward<Arguments>(arguments)...);
  }
  template <class... Arguments>
  auto operator()(Arguments&&... arguments) {
    return forward(std::forward<Arguments>(arguments)...);
  }
  M& module() { return *module_; }  ///< as given to initialize()

  /// For structured bindings: engine, optimizer, loader, scheduler.
  template <std::size_t I>
  decltype(auto) get() {
    if constexpr (I == 0)
      return static_cast<Engine&>(*this);
    else if constexpr (I == 1)
      return this->optimizer_handle();
    else if constexpr (I == 2)
      return static_cast<DataLoader&>(training_dataloader());
    else
      return lr_scheduler();
  }

 private:
  std::shared_ptr<M> module_;
};

/// deepspeed.initialize: joins the job (unless tessera::init() was called), reads the configuration, divides the module
/// over the ranks. Rank 0's weights are everyone's. Collective. Throws InputError for configurations that do not hold.
template <class M>
Engine<M> initialize(std::shared_ptr<M> module, const InitializeOptions& options = {}) {
  return Engine<M>(std::move(module), options);
}
template <class M>
Engine<M> initialize(const torch::nn::ModuleHolder<M>& module, const InitializeOptions& options = {}) {
  return Engine<M>(module.ptr(), options);
}

}  // namespace tessera

template <class M>
struct std::tuple_size<tessera::Engine<M>> : std::integral_constant<std::size_t, 4> {};
template <class M>
struct std::tuple_element<0, tessera::Engine<M>> {
  using type = tessera::Engine<M>&;
};
template <class M>
struct std::tuple_element<1, tessera::Engine<M>> {
  using type = tessera::faces::EngineOptimizer;
};
template <class M>
struct std::tuple_element<2, tessera::Engine<M>> {
  using type = tessera::DataLoader&;
};
template <class M>
struct std::tuple_element<3, tessera::Engine<M>> {
  using type = tessera::faces::EngineScheduler;
};
