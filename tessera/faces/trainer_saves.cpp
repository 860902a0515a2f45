// What tessera::Trainer writes and reads back: checkpoints, the best of them, the model.

#include <tessera/comm/agree.h>
#include <tessera/faces/trainer.h>

#include <ATen/ATen.h>

#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/checkpoint/files.h>
#include <tessera/checkpoint/folder.h>
#include <tessera/comm/life.h>
#include <tessera/config/core/validate_evaluations.h>
#include <tessera/faces/folder.h>

namespace tessera {

/// What follows the evaluations: the rules of `tessera train` (config/core/validate_evaluations.h), and those about
/// what only the program can give.
void Trainer::check_evaluations() const {
  config::Problems problems;
  config::validate_evaluations(options_.arguments, problems);
  for (const config::FollowsEvaluations& follower : config::what_follows_evaluations(options_.arguments)) {
    if (!options_.eval_dataset)
      problems.lines.push_back(concat("Trainer: ", follower.said,
                                      " follows the evaluations, and there is nothing to evaluate on: "
                                      "give TrainerOptions::eval_dataset"));
    if (follower.needs_checkpoints && options_.arguments.values.output.output_dir.empty())
      problems.lines.push_back(
          concat("Trainer: ", follower.said, " needs a folder for its checkpoints: give --output_dir"));
  }
  config::throw_if_any(problems);
}

/// As the checkpoint that is resumed has it (null: none is).
void Trainer::restore_best_model(const Value& saved) {
  checkpoint::RunState resumed;
  if (const Value* best = saved.is_null() ? nullptr : saved.find("best")) {
    resumed.best_metric = best->at("metric").as_real();
    resumed.best_step = best->at("step").as_int();
    resumed.best_model_checkpoint = best->at("checkpoint").as_string();
  }
  best_.emplace(options_.arguments.values.output, &resumed);
  state_.best_metric = resumed.best_metric;
  state_.best_global_step = resumed.best_step;
  state_.best_model_checkpoint = resumed.best_model_checkpoint;
}

/// A checkpoint that cannot be written is dropped on every rank, and training goes on, as in `tessera train`.
void Trainer::save(const train::RunPlan& plan) {
  const OutputConfig& output = options_.arguments.values.output;
  if (output.output_dir.empty()) return;
  if (saver_ && saver_->busy() && output.async_save_when_busy == WhenBusy::skip) {
    if (state_.is_world_process_zero)
      log::warning("step ", state_.global_step,
                   " is not saved: the checkpoint before it is still being written (--async_save_when_busy skip)");
    return;
  }
  finish_saving();
  const comm::LifeState saving(launch::RankState::saving);  // a slow disk is no hang
  const bool full = output.save_state_dict_type == StateDictType::full, beside = output.async_save && !full;
  best_->saving(state_.global_step, checkpoint::step_folder(output.output_dir, state_.global_step));
  state_.best_model_checkpoint = best_->checkpoint();
  saving_epoch_ = state_.epoch;
  if (!saver_)
    saver_ = std::make_unique<train::Saver>(training_->group(),
                                            train::SaverOptions{.output_dir = output.output_dir, .in_memory = beside});
  train::SaveContents contents{.step = state_.global_step, .form = {.full = full}};
  contents.prune = [folder = output.output_dir, step = state_.global_step, keep = output.save_total_limit,
                    best = best_->checkpoint()] { checkpoint::prune_step_folders(folder, step, keep, best); };
  faces::start_saving({training_.get()}, *saver_, std::move(contents), progress(plan),
                      {{checkpoint::kTrainerStateFile, checkpoint::trainer_state(run_state(plan))}});
  if (!beside) finish_saving();
}

/// What has become of a checkpoint; the same on every rank.
void Trainer::saved(const train::SaveOutcome& outcome) {
  if (!outcome.error.empty()) {
    best_->not_saved(outcome.folder);
    state_.best_model_checkpoint = best_->checkpoint();
    if (state_.is_world_process_zero) log::warning(train::not_saved_text(outcome));
    return;
  }
  TrainerState then = state_;  // of when it was due
  then.global_step = outcome.step;
  then.epoch = saving_epoch_;
  for (const auto& callback : options_.callbacks) callback->on_save(then, control_, outcome.folder);
}

/// Before a step: a checkpoint that is written beside the training goes on when every rank has done its part.
void Trainer::advance_saving() {
  if (!saver_ || !saver_->busy()) return;
  if (comm::any_rank(training_->group(), !saver_->ended())) return;
  if (const auto outcome = saver_->advance()) saved(*outcome);
}

void Trainer::finish_saving() {
  if (!saver_ || !saver_->busy()) return;
  const comm::LifeState saving(launch::RankState::saving);
  if (const auto outcome = saver_->finish()) saved(*outcome);
}

/// What continues train() besides what continues any training.
Value Trainer::progress(const train::RunPlan& plan) const {
  Value own = Value::make_object(
      {{"step", Value::of(state_.global_step)}, {"samples", Value::of(plan.samples(state_.global_step))}});
  if (best_->value())
    own.set("best", Value::make_object({{"metric", Value::of(*best_->value())},
                                        {"step", Value::of(best_->step())},
                                        {"checkpoint", Value::of(best_->checkpoint())}}));
  if (training_->follows_evaluations()) own.set("plateau", training_->schedule_state());
  return own;
}

/// What transformers' trainer_state.json tells.
checkpoint::RunState Trainer::run_state(const train::RunPlan& plan) const {
  checkpoint::RunState saved;
  plan.write_to(saved, state_.global_step);
  saved.log_history = state_.log_history;
  best_->write_to(saved);
  return saved;
}

void Trainer::save_model(const std::string& folder) {
  const std::string target = folder.empty() ? options_.arguments.values.output.output_dir : folder;
  if (target.empty()) throw InputError("Trainer: save_model needs a folder, or --output_dir");
  faces::save_weights(*training_, target, 10'000'000'000);
}

}  // namespace tessera
