// Saving and loading of tessera::Trainer: checkpoints, the best one, the model.

#include <tessera/comm/run_on_all_ranks.h>
#include <tessera/faces/trainer.h>

#include <ATen/ATen.h>

#include <utility>

#include <tessera/base/error.h>
#include <tessera/config/resolve/validate_evaluations.h>
#include <tessera/faces/folder.h>
#include <tessera/faces/model_features.h>

namespace tessera {

/// Checks the settings that follow evaluations: the rules of `tessera train` (config/resolve/validate_evaluations.h),
/// plus rules about what only the program can provide.
void Trainer::check_evaluations() const {
  config::Problems problems;
  config::validate_evaluations(options_.arguments, problems);
  for (const config::FollowsEvaluations& follower : config::what_follows_evaluations(options_.arguments.values)) {
    const std::string said = options_.arguments.said(follower.setting) + follower.value;
    if (!options_.eval_dataset)
      problems.lines.push_back(concat("Trainer: ", said,
                                      " follows the evaluations, but there is no data to evaluate on: "
                                      "set TrainerOptions::eval_dataset"));
    if (follower.needs_checkpoints && options_.arguments.values.output.output_dir.empty())
      problems.lines.push_back(concat("Trainer: ", said, " needs a folder for its checkpoints: set --output_dir"));
  }
  config::throw_if_any(problems);
}

void Trainer::save(const train::RunPlan& plan) {
  const OutputConfig& output = options_.arguments.values.output;
  if (output.output_dir.empty()) return;
  saving_epoch_ = state_.epoch;
  const auto fill = [&](train::SaveContents& contents) {
    checkpoint::RunState saved;
    plan.write_to(saved, state_.global_step);
    saved.log_history = state_.log_history;
    checkpoints_->best().write_to(saved);
    features_->list().each(&train::RunFeature::save, saved);
    saved.model_only = !contents.form.optimizer;
    return faces::fill(contents, {training_.get()}, std::move(saved));
  };
  const bool full = output.save_state_dict_type == StateDictType::full;
  checkpoints_->save(state_.global_step, {.optimizer = !output.save_only_model, .full = full}, fill);
  note_best();
}

void Trainer::note_best() {
  const train::BestModel& best = checkpoints_->best();
  state_.best_metric = best.value();
  state_.best_global_step = best.step();
  state_.best_model_checkpoint = best.checkpoint();
}

void Trainer::saved(const train::SaveOutcome& outcome) {
  note_best();
  if (!outcome.error.empty()) return;
  TrainerState then = state_;  // the state when the checkpoint was due
  then.global_step = outcome.step;
  then.epoch = saving_epoch_;
  for (const auto& callback : options_.callbacks) callback->on_save(then, control_, outcome.folder);
}

void Trainer::save_model(const std::string& folder) {
  const std::string target = folder.empty() ? options_.arguments.values.output.output_dir : folder;
  if (target.empty()) throw InputError("Trainer: save_model needs a folder, or --output_dir");
  faces::save_weights(*training_, target, 10'000'000'000);
}

}  // namespace tessera
