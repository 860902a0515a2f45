// Checkpoints, the best of them, and the finished model.

#include <tessera/train/training_loop.h>

#include <functional>

#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/comm/life.h>
#include <tessera/train/gathered.h>

namespace tessera::train {

void TrainingLoop::save() {
  saved_step_ = step_;
  best_.saving(step_, path_join(setup_.config.output.output_dir, concat("checkpoint-", step_)));
  if (!output_ && !divided()) return;
  const comm::LifeState saving(launch::RankState::saving);
  enter(Phase::other, "save");
  std::string folder;
  const auto write = [&] {
    GatheredTensors weights = trained_weights(*sharded_), states = optimizer_states(*sharded_, *optimizer_);
    std::function<void()> writer;
    if (output_)
      writer = [&] {
        checkpoint::RunState state = run_state();
        state.optimizer_sources = states.sources();
        folder = output_->save_checkpoint(setup_, weights.sources(), state);
      };
    write_gathered({&weights, &states}, writer);
  };
  if (divided())
    agree(world_.group(), write);
  else
    write();
  if (output_) journal_.note(concat("saved ", folder));
  write_report();
  enter(Phase::other);
}

/// What the run leaves is the best model that it has saved.
void TrainingLoop::load_best_model() {
  if (!setup_.config.output.load_best_model_at_end) return;
  const std::string& folder = best_.checkpoint();
  if (folder.empty()) {
    if (world_.rank() == 0)
      log::warning("--load_best_model_at_end: no checkpoint of a best evaluation was saved, so the last weights stay");
    return;
  }
  enter(Phase::other, "load");
  agree(world_.group(), [&] { load_trained_weights(*setup_.model, *sharded_, folder); });
  journal_.note(concat("the best model (step ", best_.step(), ", ", format_real(*best_.value(), 6), ") was loaded from ", folder));
  enter(Phase::other);
}

void TrainingLoop::save_final_model() {
  if (!output_ && !divided()) return;
  const auto write = [&] {
    GatheredTensors weights = trained_weights(*sharded_);
    std::function<void()> writer;
    if (output_) writer = [&] { output_->save_model(setup_, weights.sources(), run_state()); };
    write_gathered({&weights}, writer);
  };
  if (divided())
    agree(world_.group(), write);
  else
    write();
  if (output_) output_->save_merged(setup_);
  last_sample_ = sample_text(setup_);
}

checkpoint::RunState TrainingLoop::run_state() const {
  const OptimizationConfig& optimization = setup_.config.optimization;
  checkpoint::RunState state;
  state.step = step_;
  state.samples = plan_.samples(step_);
  state.seed = static_cast<std::uint64_t>(optimization.seed);
  state.log_history = journal_.log_history();
  state.optimizer_steps = optimizer_->steps();
  if (loss_scale_) {
    state.loss_scale = loss_scale_->state().scale;
    state.loss_scale_good_steps = loss_scale_->state().good_steps;
    state.loss_scale_skipped_steps = loss_scale_->state().skipped_steps;
    state.loss_scale_hysteresis = loss_scale_->state().hysteresis;
  }
  if (plateau_) state.schedule_state = to_value(plateau_->state());
  state.model_only = setup_.config.output.save_only_model;
  best_.write_to(state);
  state.epoch = plan_.epoch(step_);
  state.max_steps = plan_.total_steps;
  state.num_train_epochs = optimization.num_train_epochs;
  state.train_batch_size = optimization.per_device_train_batch_size;
  state.logging_steps = plan_.logging_steps;
  state.eval_steps = plan_.eval_every;
  state.save_steps = plan_.save_every;
  state.num_input_tokens_seen = tokens_ + (setup_.resume ? setup_.resume->num_input_tokens_seen : 0);
  state.total_flos = flops_per_token() * static_cast<double>(state.num_input_tokens_seen);
  return state;
}

}  // namespace tessera::train
