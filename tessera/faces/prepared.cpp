#include <tessera/faces/prepared.h>

#include <torch/optim/schedulers/lr_scheduler.h>

#include <tessera/base/error.h>
#include <tessera/config/core/run_config.h>

namespace tessera {

void faces::PreparedTraining::step_schedules() {
  training.step_schedule();
  if (torch_scheduler == nullptr) return;
  torch_scheduler->step();
  ++torch_scheduler_steps;
}

std::vector<faces::Training*> faces::AcceleratorState::trained() const {
  if (prepared.empty()) throw InputError("Accelerator: call prepare(model, optimizer, ...) first");
  std::vector<Training*> trainings;
  for (const auto& one : prepared) trainings.push_back(&one->training);
  return trainings;
}

bool faces::AcceleratorState::expect_step(bool is_last) {
  for (Training* training : trained()) training->expect_step(is_last);
  return std::exchange(expects_step, is_last);
}

const faces::LoaderState* faces::AcceleratorState::ending_loader() const {
  // a loader whose pass ended with a break stays at its last batch: the loader being read decides, if its pass is
  // running
  if (const auto last = loader_group->last.lock(); last && last->batches > 0)
    return last->end_of_loader ? last.get() : nullptr;
  for (const DataLoader& loader : loaders)
    if (loader.state().end_of_loader) return &loader.state();
  return nullptr;
}

bool faces::AcceleratorState::stand_in() const {
  const auto last = loader_group->last.lock();
  return last && last->stand_in;
}

void faces::AcceleratorState::check_uneven(std::int64_t accumulation) const {
  const auto last = loader_group->last.lock();
  if (!last || last->batches <= last->common) return;
  const Training& training = *trained().front();
  const ParallelConfig& parallel = training.config().parallel;
  const bool every_batch_together =
      row_of(training.config().sharding.strategy).shard_gradients || parallel.deterministic_reduce;
  const auto steps = [&](std::int64_t batches) { return (batches + accumulation - 1) / accumulation; };
  // the last step of a pass may take fewer micro-batches, so a rank with fewer batches may still take as many steps
  if (!every_batch_together &&
      (!sync_gradients || (sync_with_dataloader && steps(last->batches) == steps(last->common))))
    return;
  throw InputError(
      concat("Accelerator: this is batch ", last->batches, " of rank ", training.all().rank(),
             ", but other ranks have only ", last->common,
             " batches, so this rank would wait for them: even_batches is false, and the rows do not divide evenly. "
             "Train inside the scope of join_uneven_inputs(), keep even_batches true, or, in a loop that distributes "
             "rows itself, let a rank without rows continue with a batch whose loss is multiplied by zero"));
}

void PreparedOptimizer::step() {
  faces::PreparedTraining& prepared = faces::in_use(prepared_);
  if (!state_->sync_gradients) return;
  faces::Training& own = prepared.training;
  const auto scale = [&] { return own.loss_scale() != nullptr ? own.loss_scale()->scale() : 1.0; };
  const double before = scale();
  if (state_->max_grad_norm > 0) own.clip(state_->max_grad_norm);
  prepared.step_was_skipped = !own.step();
  const double changed = scale() / before;
  if (changed == 1) return;
  for (const auto& other : state_->prepared)  // their remaining gradients will be divided by the current scale
    if (other != prepared_) other->training.rescale_gradients(changed);
}

void PreparedOptimizer::zero_grad() {
  faces::Training& own = faces::in_use(prepared_).training;
  if (state_->sync_gradients) own.zero_grad();
}

void PreparedScheduler::step() {
  faces::PreparedTraining& prepared = faces::in_use(prepared_);
  if (!state_->step_scheduler_with_optimizer) return prepared.step_schedules();
  if (!state_->sync_gradients || prepared.step_was_skipped) return;
  for (std::int64_t i = 0; i < state_->scheduler_steps; ++i) prepared.step_schedules();
}

}  // namespace tessera
