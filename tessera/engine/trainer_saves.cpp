// What tessera::Trainer writes and reads back: checkpoints, the best of them, the model.

#include <tessera/engine/trainer.h>

#include <ATen/ATen.h>

#include <unistd.h>

#include <exception>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/checkpoint/folder.h>
#include <tessera/comm/life.h>
#include <tessera/config/validate_evaluations.h>
#include <tessera/engine/folder.h>
#include <tessera/train/setup.h>

namespace tessera {
namespace {

/// What `work` throws on any rank, as one text on all of them. Collective.
std::string errors_of(const comm::Group& group, const std::function<void()>& work) {
  std::string own;
  try {
    work();
  } catch (const std::exception& failed) {
    own = failed.what();
  }
  return train::errors_of_all(group, own);
}

}  // namespace

/// What follows the evaluations: the rules of `tessera train` (config/validate_evaluations.h), and those about what only the program can give.
void Trainer::check_evaluations() const {
  config::Problems problems;
  config::validate_evaluations(options_.arguments, problems);
  for (const config::FollowsEvaluations& follower : config::what_follows_evaluations(options_.arguments)) {
    if (!options_.eval_dataset)
      problems.lines.push_back(concat("Trainer: ", follower.said, " follows the evaluations, and there is nothing to evaluate on: "
                                      "give TrainerOptions::eval_dataset"));
    if (follower.needs_checkpoints && options_.arguments.values.output.output_dir.empty())
      problems.lines.push_back(concat("Trainer: ", follower.said, " needs a folder for its checkpoints: give --output_dir"));
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

void Trainer::load_best_model() {
  if (!options_.arguments.values.output.load_best_model_at_end) return;
  const std::string& folder = best_->checkpoint();
  if (folder.empty()) {
    if (state_.is_world_process_zero)
      log::warning("--load_best_model_at_end: no checkpoint of a best evaluation was saved, so the last weights stay");
    return;
  }
  engine::load_training(*training_, folder, /*with_optimizer=*/false, /*with_random=*/false);
}

/// A checkpoint that cannot be written is dropped on every rank, and training goes on, as in `tessera train`.
void Trainer::save(const train::RunPlan& plan) {
  const OutputConfig& output = options_.arguments.values.output;
  if (output.output_dir.empty()) return;
  const comm::LifeState saving(launch::RankState::saving);  // a slow disk is no hang
  const std::string folder = checkpoint::step_folder(output.output_dir, state_.global_step);
  best_->saving(state_.global_step, folder);
  const bool whole = output.save_state_dict_type == "full" || training_->update().own_optimizer() == nullptr;
  const train::SaveOutcome outcome = whole ? save_whole(plan) : save_parts(plan);
  if (!outcome.error.empty()) best_->not_saved(folder);
  state_.best_model_checkpoint = best_->checkpoint();
  if (!outcome.error.empty()) {
    if (state_.is_world_process_zero) log::warning(train::not_saved_text(outcome));
    return;
  }
  if (state_.is_world_process_zero)
    train::prune_or_warn(folder, [&] {
      checkpoint::prune_step_folders(output.output_dir, state_.global_step, output.save_total_limit, best_->checkpoint());
    });
  call(&TrainerCallback::on_save, folder);
}

/// What continues train() besides what continues any training.
Value Trainer::progress(const train::RunPlan& plan) const {
  Value own = Value::make_object({{"step", Value::of(state_.global_step)},
                                  {"samples", Value::of(plan.samples(state_.global_step))}});
  if (best_->value())
    own.set("best", Value::make_object({{"metric", Value::of(*best_->value())},
                                        {"step", Value::of(best_->step())},
                                        {"checkpoint", Value::of(best_->checkpoint())}}));
  if (plateau_) own.set("plateau", plateau_->state());
  return own;
}

/// On rank 0.
void Trainer::write_trainer_state(const std::string& folder, const train::RunPlan& plan) const {
  checkpoint::RunState saved;
  plan.write_to(saved, state_.global_step);
  saved.log_history = state_.log_history;
  best_->write_to(saved);
  checkpoint::write_trainer_state(folder, saved);
}

/// Each rank writes what it holds.
train::SaveOutcome Trainer::save_parts(const train::RunPlan& plan) {
  const std::int64_t step = state_.global_step;
  if (!saver_)
    saver_ = std::make_unique<train::Saver>(
        training_->group(),
        train::SaverOptions{.output_dir = options_.arguments.values.output.output_dir, .in_memory = false});
  try {
    engine::save_training_parts(*training_, *saver_, step, progress(plan));
  } catch (const Error&) {
    // The ranks have agreed on what the saver says of it. Anything else, as a peer that is gone, is no matter of the disk.
    if (!saver_->last() || saver_->last()->step != step || saver_->last()->error.empty()) throw;
    return *saver_->last();
  }
  train::SaveOutcome outcome = *saver_->last();
  outcome.error = errors_of(training_->group(), [&] {
    if (!state_.is_world_process_zero) return;
    try {
      write_trainer_state(outcome.folder, plan);
    } catch (...) {
      remove_tree(outcome.folder);  // transformers could not read it
      throw;
    }
  });
  return outcome;
}

/// Rank 0 writes whole tensors.
train::SaveOutcome Trainer::save_whole(const train::RunPlan& plan) {
  const std::string& output_dir = options_.arguments.values.output.output_dir;
  const std::int64_t step = state_.global_step;
  const std::string writing = checkpoint::writing_folder(output_dir, step, ::getpid());  // rank 0's: all that is left when this fails
  train::SaveOutcome outcome{.step = step, .folder = checkpoint::step_folder(output_dir, step)};
  if (state_.is_world_process_zero) train::remove_stale_or_warn(output_dir);
  outcome.error = errors_of(training_->group(), [&] {
    const std::string made = path_join(writing, "whole");
    engine::save_training(*training_, made, progress(plan));
    if (!state_.is_world_process_zero) return;
    write_trainer_state(made, plan);
    checkpoint::publish_written_folder(made, output_dir, step);
  });
  if (state_.is_world_process_zero) train::remove_or_warn(writing);
  return outcome;
}

std::optional<std::string> Trainer::checkpoint_to_resume() const {
  const OutputConfig& output = options_.arguments.values.output;
  if (output.resume_from_checkpoint.empty()) return std::nullopt;
  if (output.resume_from_checkpoint != "last") return output.resume_from_checkpoint;
  for (const checkpoint::StepFolder& folder : checkpoint::step_folders(output.output_dir))
    if (checkpoint::looks_complete(folder.path)) return folder.path;
  throw InputError(concat("--resume_from_checkpoint: ", output.output_dir, " holds no whole checkpoint-N"));
}

void Trainer::save_model(const std::string& folder) {
  const std::string target = folder.empty() ? options_.arguments.values.output.output_dir : folder;
  if (target.empty()) throw InputError("Trainer: save_model needs a folder, or --output_dir");
  engine::save_weights(*training_, target, 10'000'000'000);
}

}  // namespace tessera
