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
/// With the data; as deepspeed.initialize does, it returns four things (the last three belong to the engine and reflect
/// its state):
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

/// The arguments that deepspeed.add_config_arguments() adds to a program.
struct ConfigArguments {
  bool deepspeed = false;             ///< --deepspeed
  std::string deepspeed_config = {};  ///< --deepspeed_config FILE; empty: not given
  int local_rank = -1;                ///< --local_rank N, of launchers that give it; -1: not given
};
/// Removes them from `arguments` (without the program's name); the program parses the rest. Throws InputError for a
/// name without its value, or a local rank that is not a number. Not collective.
ConfigArguments add_config_arguments(std::vector<std::string>& arguments);

/// deepspeed.init_distributed: joins the job, from any launcher's environment, unless already done. initialize() calls
/// it as well. Throws the errors of tessera::init(). Collective.
comm::World& init_distributed(const InitOptions& options = {});

/// The arguments of deepspeed.initialize(), by their names there.
struct InitializeOptions {
  /// DeepSpeed's JSON: a file, or the object itself as text. Empty: `arguments` contain all settings.
  std::string config = {};
  /// Further settings, as flags of `tessera train`: {"--seed", "1"}. "auto" in the JSON takes its value from them;
  /// contradictions are errors.
  std::vector<std::string> arguments = {};
  /// Your own optimizer, of the module's parameters (it must outlive the engine), instead of the JSON's.
  torch::optim::Optimizer* optimizer = nullptr;
  /// The learning rate's factor after `steps` steps, instead of the JSON's scheduler.
  std::function<double(std::int64_t steps)> lr_lambda = {};
  /// Rows from which the engine makes this rank's loader (deepspeed_io), shuffled.
  std::optional<RowSource> training_data = {};
  comm::Group group = {};  ///< the data-parallel ranks; empty: all, or with tensor_parallel those with different rows
  /// How your own module is cut with tensor_parallel.autotp_size in the JSON, or --tp_size among the arguments
  /// (parallel/tensor_parallel.h); our models have their own plans.
  layout::TensorPlan tp_plan = {};
};

namespace faces {

/// The configuration for the options and `ranks` data-parallel ranks: batch sizes are inferred from each other as in
/// DeepSpeed. Throws InputError with all problems, each with file and line.
RunConfig read_configuration(const InitializeOptions& options, int ranks);

/// The training of an engine. Throws InputError if the engine was destroyed or no longer exists.
Training& of_engine(const std::weak_ptr<Training>& training);

/// Base of the objects that initialize() returns besides the engine. The engine takes the steps. Calls after the
/// engine's end throw InputError.
class EngineHandle {
 protected:
  explicit EngineHandle(std::weak_ptr<Training> training) : training_(std::move(training)) {}
  Training& training() const { return of_engine(training_); }

 private:
  std::weak_ptr<Training> training_;
};

/// The optimizer that initialize() returns: it can be queried and zeroed; the engine steps it.
class EngineOptimizer : public EngineHandle {
 public:
  /// Made by the engine; does not keep the engine alive.
  explicit EngineOptimizer(std::weak_ptr<Training> training) : EngineHandle(std::move(training)) {}
  std::vector<double> learning_rates() const { return training().update().learning_rates(); }  ///< one per group
  std::int64_t steps() const { return training().update().steps(); }  ///< steps taken, without skipped ones
  double loss_scale() const { return training().loss_factor(); }      ///< with fp16 the factor of losses; otherwise 1
  void zero_grad() { training().zero_grad(); }                        ///< as DeepSpeedEngine::zero_grad()
};

/// The learning-rate schedule that initialize() returns: the engine steps it.
class EngineScheduler : public EngineHandle {
 public:
  /// Made by the engine; does not keep the engine alive. `exists`: the configuration or the options specify a schedule.
  EngineScheduler(std::weak_ptr<Training> training, bool exists) : EngineHandle(std::move(training)), exists_(exists) {}
  /// False if neither JSON nor options specify a schedule (None in Python).
  explicit operator bool() const { return exists_; }
  std::vector<double> get_last_lr() const { return training().update().learning_rates(); }  ///< by parameter group
  std::int64_t steps() const { return training().schedule_steps(); }                        ///< steps it has taken

 private:
  bool exists_;
};

/// The parts of an engine that do not depend on the module's type. Methods have DeepSpeed's names and meaning.
/// Collective wherever Sharded's are.
class DeepSpeedEngine {
 public:
  /// Does the work of initialize(), for a module whose type is not known here.
  DeepSpeedEngine(std::shared_ptr<torch::nn::Module> module, const InitializeOptions& options);
  DeepSpeedEngine(DeepSpeedEngine&&) = default;
  DeepSpeedEngine& operator=(DeepSpeedEngine&&) = default;

  /// Runs backward. `loss`: the mean over this rank's micro-batch, one element; it is divided by
  /// gradient_accumulation_steps() here.
  void backward(const at::Tensor& loss);
  /// Call after every backward. At the boundary: clips, updates the weights (with fp16 unless gradients overflowed),
  /// advances the schedule by one step and clears the gradients; otherwise only counts.
  void step();
  /// Releases all gradients, including those kept for the end of the step.
  void zero_grad() { training().zero_grad(); }
  void train(bool on = true) { training().module().train(on); }  ///< the module's mode
  void eval() { train(false); }                                  ///< evaluation mode

  /// Whether the current micro-batch is the last of its step.
  bool is_gradient_accumulation_boundary() const {
    return boundary_.value_or((micro_steps_ - begun_ + 1) % gradient_accumulation_steps() == 0);
  }
  /// Overrides the count, starting with the next forward: pass false, then true before the last backward; then call
  /// step() once. The loss is still divided by gradient_accumulation_steps().
  void set_gradient_accumulation_boundary(bool is_boundary);
  /// Changes the number of rows of a step: gradient_accumulation_steps() is adapted, micro-batches are unchanged.
  /// Throws InputError if it is not a multiple of micro-batch times ranks, in the middle of a step, and with
  /// deterministic_reduce, whose order depends on it.
  void set_train_batch_size(std::int64_t train_batch_size);

  /// While it exists, backward passes keep their gradients on the rank. Throws InputError at stages 2 and 3, which
  /// divide gradients immediately, and if one already exists; step() throws while one exists.
  class NoSync {
   public:
    explicit NoSync(DeepSpeedEngine& engine);  ///< throws as described above
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
  int local_rank() const { return world().local_rank(); }      ///< index among the ranks of this host
  int global_rank() const { return training().all().rank(); }  ///< index among all training ranks
  int world_size() const { return training().all().size(); }   ///< number of ranks that train the module together
  c10::Device device() const { return training().group().device(); }  ///< device of the module
  int dp_world_size() const { return training().group().size(); }     ///< number of ranks with different rows
  bool fp16_enabled() const;                                          ///< float16, with a loss scale
  bool bfloat16_enabled() const;                                      ///< computes in bfloat16

  std::int64_t global_steps() const { return global_steps_; }  ///< steps done, including skipped ones
  /// Steps of the whole run that were skipped because fp16 gradients overflowed.
  std::int64_t skipped_steps() const { return training().skipped_steps(); }
  std::int64_t micro_steps() const { return micro_steps_; }  ///< calls of step()
  bool was_step_applied() const { return applied_; }  ///< by the last step(); false between boundaries and on overflow
  std::vector<double> get_lr() const { return training().update().learning_rates(); }  ///< one per parameter group
  double get_global_grad_norm() const { return grad_norm_; }  ///< the norm of the last step, before clipping
  /// The loss scale in fp16, otherwise 1.
  double loss_scale() const { return training().loss_scale() ? training().loss_scale()->scale() : 1; }

  /// This rank's share of the data: micro-batches of train_micro_batch_size_per_gpu() rows, the same number on every
  /// rank.
  DataLoader deepspeed_io(RowSource source, bool shuffle = true, bool drop_last = false) const;

  /// Writes FOLDER/TAG (empty: global_stepN), then its name into FOLDER/latest. Each rank writes its part (with
  /// --save_state_dict_type full among the arguments, rank 0 writes whole tensors). All ranks must call it with the
  /// same tag. Returns the folder.
  std::string save_checkpoint(const std::string& folder, const std::string& tag = "",
                              const Value& client_state = Value::make_object());
  /// Result of load_checkpoint().
  struct Loaded {
    std::string path;    ///< the folder that was read
    Value client_state;  ///< as passed to save_checkpoint()
  };
  /// Parts to restore besides the weights.
  struct LoadOptions {
    bool load_optimizer_states = true;  ///< also schedule, loss scale, step counts
    bool load_random_states = true;     ///< continues with the checkpoint's random numbers
  };
  /// Loads FOLDER/TAG; an empty tag means the one named in FOLDER/latest. Returns nullopt, with a warning, if the tag
  /// is empty and FOLDER/latest does not exist. The number of ranks and the ZeRO stage may differ from those at saving.
  /// All ranks must call it.
  std::optional<Loaded> load_checkpoint(const std::string& folder, const std::string& tag, const LoadOptions& options);
  std::optional<Loaded> load_checkpoint(const std::string& folder, const std::string& tag = "") {
    return load_checkpoint(folder, tag, {});
  }
  /// Writes FOLDER/model.safetensors: whole weights at any stage (zero_to_fp32.py is not needed). All ranks must call
  /// it.
  void save_model(const std::string& folder);
  /// Returns whole parameters and buffers by name, in fp32, on the CPU: on rank 0 at stage 3, otherwise on every rank.
  /// All ranks must call it.
  StateDict module_state_dict() const { return state_dict(training()); }
  /// Ends the engine: the module has its whole parameters again and may be used without the engine; later calls of the
  /// engine throw InputError. All ranks must call it.
  void destroy();

  /// The object that updates the weights; it has the learning rates and states.
  train::Update& optimizer() { return training().update(); }
  Sharded& sharded() { return training().sharded(); }  ///< the engine around the module
  /// Throws InputError after destroy().
  faces::Training& training() const;
  /// This rank's loader of InitializeOptions::training_data; without that, reading it throws InputError.
  DataLoader& training_dataloader() { return loader_; }
  EngineScheduler lr_scheduler() const { return EngineScheduler(training_, scheduled_); }  ///< false: no schedule

 protected:
  EngineOptimizer optimizer_handle() const { return EngineOptimizer(training_); }

 private:
  bool scheduled_ = false;
  std::shared_ptr<Training> training_;  // sole owner; handles check whether it still exists
  DataLoader loader_;
  bool inside_no_sync_ = false;
  std::optional<bool> boundary_;
  std::int64_t begun_ = 0;  // micro-steps before the current count towards a step
  std::int64_t micro_steps_ = 0, global_steps_ = 0;
  double grad_norm_ = 0;
  bool applied_ = false;
};

}  // namespace faces

/// An engine for modules of type M.
template <class M>
class Engine : public faces::DeepSpeedEngine {
 public:
  /// Made by initialize(); throws its errors. Collective.
  Engine(std::shared_ptr<M> module, const InitializeOptions& options)
      : DeepSpeedEngine(module, options), module_(std::move(module)) {}

  /// Calls module.forward(...) in the configured precision. bf16: its weights are bf16 (the optimizer's are fp32), and
  /// floating-point inputs are converted to bf16; on processors without bf16 instructions both stay fp32. Outputs in
  /// fp16 or bf16 are converted to fp32.
  template <class... Arguments>
  auto forward(Arguments&&... arguments) {
    return training().forward(*module_, std::forward<Arguments>(arguments)...);
  }
  template <class... Arguments>
  auto operator()(Arguments&&... arguments) {
    return forward(std::forward<Arguments>(arguments)...);
  }
  M& module() { return *module_; }  ///< as passed to initialize()

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
/// over the ranks. All ranks get rank 0's weights. Collective. Throws InputError for invalid configurations.
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
