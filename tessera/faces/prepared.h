#pragma once
/// \file
/// The objects that Accelerator::prepare() returns for models, optimizers and schedules, and their shared state.

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
  /// Takes the arguments of Training. Collective.
  PreparedTraining(std::shared_ptr<torch::nn::Module> module, const RunConfig& config, std::int64_t accumulation,
                   const train::MakeUpdate& make_update, const TrainingRanks& ranks)
      : training(std::move(module), config, accumulation, make_update, ranks) {}

  Training training;                                     ///< divides the model over the ranks and makes its steps
  bool scheduled = false;                                ///< a schedule of either kind has been prepared with it
  torch::optim::LRScheduler* torch_scheduler = nullptr;  ///< the program's own; nullptr: none was prepared with it
  std::int64_t torch_scheduler_steps = 0;                ///< steps of torch_scheduler, including those before a resume
  bool step_was_skipped = false;                         ///< its last step was skipped: fp16 gradients overflowed

  /// Advances both kinds of schedule by one step.
  void step_schedules();
};

/// State shared by an Accelerator and the objects it prepared.
struct AcceleratorState {
  std::vector<std::shared_ptr<PreparedTraining>> prepared;                      ///< in the order of prepare()
  std::vector<DataLoader> loaders;                                              ///< in the order of prepare()
  std::shared_ptr<LoaderGroup> loader_group = std::make_shared<LoaderGroup>();  ///< shared by these loaders
  bool sync_gradients = true;                 ///< the current micro-batch ends its step (accumulate)
  bool expects_step = true;                   ///< the next backward reduces gradients (no_sync)
  bool sync_with_dataloader = true;           ///< the Accelerator's option
  bool step_scheduler_with_optimizer = true;  ///< the Accelerator's option
  double max_grad_norm = 0;          ///< every step clips to it, like DeepSpeed's engine under Accelerate; 0: none
  std::int64_t scheduler_steps = 1;  ///< steps of a schedule per step of its optimizer
  std::int64_t micro_steps = 0;      ///< accumulate() calls since the last end of a loader

  std::vector<Training*> trained() const;  ///< throws InputError before prepare()
  /// Sets whether the next backward passes reduce gradients; returns the previous setting.
  bool expect_step(bool is_last);
  /// The loader in use if it is at its last batch, otherwise nullptr. The loader in use is the one read last or, when
  /// its pass is over, an enclosing one.
  const LoaderState* ending_loader() const;
  bool stand_in() const;  ///< the batch read last is a substitute (join_uneven_inputs)
  /// Throws InputError if this rank is about to wait for ranks that have no batch left.
  void check_uneven(std::int64_t accumulation) const;
};

/// Returns the object of a handle. Throws InputError after free_memory().
template <class T>
T& in_use(const std::shared_ptr<T>& held) {
  if (held) return *held;
  throw InputError("Accelerator: this model, optimizer or schedule was released by free_memory(): prepare it again");
}

}  // namespace faces

/// The module as called by the loop: in the configured precision; narrow outputs become fp32.
template <class M>
class PreparedModel {
 public:
  /// Created by Accelerator::prepare().
  PreparedModel(std::shared_ptr<M> module, std::shared_ptr<faces::PreparedTraining> prepared)
      : module_(std::move(module)), prepared_(std::move(prepared)) {}

  /// Calls module.forward(...) as faces::Training::forward() does.
  template <class... Arguments>
  auto forward(Arguments&&... arguments) {
    return training().forward(*module_, std::forward<Arguments>(arguments)...);
  }
  /// Same as forward(...).
  template <class... Arguments>
  auto operator()(Arguments&&... arguments) {
    return forward(std::forward<Arguments>(arguments)...);
  }
  void train(bool on = true) { training().module().train(on); }  ///< module mode, as Module::train()
  void eval() { train(false); }                                  ///< evaluation mode
  const std::shared_ptr<M>& module() const { return module_; }   ///< as given; nullptr after release()
  /// Throws InputError after release().
  faces::Training& training() const { return faces::in_use(prepared_).training; }
  /// Releases it (Accelerator::free_memory): the last release ends the training.
  void release() {
    prepared_.reset();
    module_.reset();
  }

 private:
  std::shared_ptr<M> module_;
  std::shared_ptr<faces::PreparedTraining> prepared_;
};

/// Acts only when gradients are in sync (at the end of a step).
class PreparedOptimizer {
 public:
  /// Created by Accelerator::prepare().
  PreparedOptimizer(std::shared_ptr<faces::AcceleratorState> state, std::shared_ptr<faces::PreparedTraining> prepared)
      : state_(std::move(state)), prepared_(std::move(prepared)) {}
  void step();       ///< updates the weights, unless fp16 gradients overflowed. Collective
  void zero_grad();  ///< makes the gradients undefined
  bool step_was_skipped() const { return faces::in_use(prepared_).step_was_skipped; }  ///< fp16 gradients overflowed
  /// One per parameter group.
  std::vector<double> learning_rates() const { return faces::in_use(prepared_).training.update().learning_rates(); }
  void release() { prepared_.reset(); }  ///< releases the model (Accelerator::free_memory)

 private:
  std::shared_ptr<faces::AcceleratorState> state_;
  std::shared_ptr<faces::PreparedTraining> prepared_;
};

/// Follows its optimizer like accelerate's AcceleratedScheduler (accelerate/scheduler.py): step() acts if the optimizer
/// took its step (not while gradients are accumulated, and not if fp16 gradients overflowed), and then takes as many
/// steps as there are processes, because a schedule is written for one process, whose pass has that many times the
/// batches; with split_batches, which does not change the number of batches, it takes one.
/// step_scheduler_with_optimizer = false: one step per call.
class PreparedScheduler {
 public:
  /// Created by Accelerator::prepare().
  PreparedScheduler(std::shared_ptr<faces::AcceleratorState> state, std::shared_ptr<faces::PreparedTraining> prepared)
      : state_(std::move(state)), prepared_(std::move(prepared)) {}
  void step();  ///< advances the learning rates as described above
  /// The learning rates of the next step, one per parameter group.
  std::vector<double> get_last_lr() const { return faces::in_use(prepared_).training.update().learning_rates(); }
  void release() { prepared_.reset(); }  ///< releases the model (Accelerator::free_memory)

 private:
  std::shared_ptr<faces::AcceleratorState> state_;
  std::shared_ptr<faces::PreparedTraining> prepared_;
};

}  // namespace tessera
