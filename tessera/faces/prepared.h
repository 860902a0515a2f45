#pragma once
/// \file
/// What Accelerator::prepare() gives back for models, optimizers and schedules, and what these share.

#include <tessera/base/error.h>
#include <tessera/faces/loader.h>
#include <tessera/faces/training.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace torch::optim {
class LRScheduler;
}

namespace tessera {

namespace faces {

/// A model, its optimizer, its schedule.
struct PreparedTraining {
  /// Takes what Training takes. Collective.
  PreparedTraining(std::shared_ptr<torch::nn::Module> module, const RunConfig& config, std::int64_t accumulation,
                   const train::MakeUpdate& make_update, const TrainingRanks& ranks)
      : training(std::move(module), config, accumulation, make_update, ranks) {}

  Training training;                                     ///< divides the model over the ranks and makes its steps
  bool scheduled = false;                                ///< a schedule has been prepared with it, of either kind
  torch::optim::LRScheduler* torch_scheduler = nullptr;  ///< the program's own; nullptr: none was prepared with it
  std::int64_t torch_scheduler_steps = 0;                ///< that torch_scheduler has taken, also before a resume
  bool step_was_skipped = false;                         ///< the last one of its optimizer: fp16 gradients overflowed

  /// Both kinds of schedule, one step on.
  void step_schedules();
};

/// What an Accelerator and what it prepared share.
struct AcceleratorState {
  std::vector<std::shared_ptr<PreparedTraining>> prepared;                      ///< in the order of prepare()
  std::vector<DataLoader> loaders;                                              ///< in the order of prepare()
  std::shared_ptr<LoaderGroup> loader_group = std::make_shared<LoaderGroup>();  ///< what these loaders have in common
  bool sync_gradients = true;                 ///< the micro-batch in hand ends its step (accumulate)
  bool expects_step = true;                   ///< the next backward reduces gradients (no_sync)
  bool sync_with_dataloader = true;           ///< the Accelerator's option
  bool step_scheduler_with_optimizer = true;  ///< the Accelerator's option
  double max_grad_norm = 0;          ///< every step clips to it, as DeepSpeed's engine does under Accelerate; 0: none
  std::int64_t scheduler_steps = 1;  ///< that a schedule takes with each step of its optimizer
  std::int64_t micro_steps = 0;      ///< accumulate()d since the last end of a loader

  std::vector<Training*> trained() const;  ///< throws InputError before prepare()
  /// Whether the next backwards reduce gradients; returns what was so before.
  bool expect_step(bool is_last);
  /// The loader in use if it is at its last batch, else nullptr. In use is the one read last; when its pass is over,
  /// one around it.
  const LoaderState* ending_loader() const;
  bool stand_in() const;  ///< the batch read last is one that does not count (join_uneven_inputs)
  /// Throws InputError when this rank is about to wait for ranks that have no batch any more.
  void check_uneven(std::int64_t accumulation) const;
};

/// What a handle refers to. Throws InputError when free_memory() has taken it.
template <class T>
T& in_use(const std::shared_ptr<T>& held) {
  if (held) return *held;
  throw InputError("Accelerator: this model, optimizer or schedule was given to free_memory(): prepare it again");
}

}  // namespace faces

/// The module as the loop calls it: in the precision of the configuration; narrow outputs become fp32.
template <class M>
class PreparedModel {
 public:
  /// Accelerator::prepare() makes it.
  PreparedModel(std::shared_ptr<M> module, std::shared_ptr<faces::PreparedTraining> prepared)
      : module_(std::move(module)), prepared_(std::move(prepared)) {}

  /// module.forward(...), as faces::Training::forward() does it.
  template <class... Arguments>
  auto forward(Arguments&&... arguments) {
    return training().forward(*module_, std::forward<Arguments>(arguments)...);
  }
  /// As forward(...).
  template <class... Arguments>
  auto operator()(Arguments&&... arguments) {
    return forward(std::forward<Arguments>(arguments)...);
  }
  void train(bool on = true) { training().module().train(on); }  ///< the mode of the module, as Module::train()
  void eval() { train(false); }                                  ///< the mode of evaluation
  const std::shared_ptr<M>& module() const { return module_; }   ///< as given; nullptr after release()
  /// Throws InputError after release().
  faces::Training& training() const { return faces::in_use(prepared_).training; }
  /// Lets go of it (Accelerator::free_memory): the last one to do so ends the training.
  void release() {
    prepared_.reset();
    module_.reset();
  }

 private:
  std::shared_ptr<M> module_;
  std::shared_ptr<faces::PreparedTraining> prepared_;
};

/// Acts when gradients are in sync (at the end of a step), and only then.
class PreparedOptimizer {
 public:
  /// Accelerator::prepare() makes it.
  PreparedOptimizer(std::shared_ptr<faces::AcceleratorState> state, std::shared_ptr<faces::PreparedTraining> prepared)
      : state_(std::move(state)), prepared_(std::move(prepared)) {}
  void step();       ///< updates the weights, unless fp16 gradients overflowed. Collective
  void zero_grad();  ///< makes the gradients undefined
  bool step_was_skipped() const { return faces::in_use(prepared_).step_was_skipped; }  ///< fp16 gradients overflowed
  /// One for each parameter group.
  std::vector<double> learning_rates() const { return faces::in_use(prepared_).training.update().learning_rates(); }
  void release() { prepared_.reset(); }  ///< lets go of the model (Accelerator::free_memory)

 private:
  std::shared_ptr<faces::AcceleratorState> state_;
  std::shared_ptr<faces::PreparedTraining> prepared_;
};

/// Follows its optimizer as accelerate's AcceleratedScheduler does (accelerate/scheduler.py): step() acts when the
/// optimizer took its step (not between, while gradients are accumulated, and not when fp16 gradients overflowed), and
/// then takes as many steps as there are processes, since a schedule is written for one process, whose pass has so many
/// times the batches; with split_batches, which leaves their number as it is, one. step_scheduler_with_optimizer =
/// false: one step whenever it is called.
class PreparedScheduler {
 public:
  /// Accelerator::prepare() makes it.
  PreparedScheduler(std::shared_ptr<faces::AcceleratorState> state, std::shared_ptr<faces::PreparedTraining> prepared)
      : state_(std::move(state)), prepared_(std::move(prepared)) {}
  void step();  ///< moves the learning rates, as said above
  /// The learning rates of the next step, one for each parameter group.
  std::vector<double> get_last_lr() const { return faces::in_use(prepared_).training.update().learning_rates(); }
  void release() { prepared_.reset(); }  ///< lets go of the model (Accelerator::free_memory)

 private:
  std::shared_ptr<faces::AcceleratorState> state_;
  std::shared_ptr<faces::PreparedTraining> prepared_;
};

}  // namespace tessera
