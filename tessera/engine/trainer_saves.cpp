// What tessera::Trainer writes and reads back: checkpoints, the best of them, the model.

#include <tessera/engine/trainer.h>

#include <ATen/ATen.h>

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

void Trainer::save(const train::RunPlan& plan) {
  const OutputConfig& output = options_.arguments.values.output;
  if (output.output_dir.empty()) return;
  const comm::LifeState saving(launch::RankState::saving);  // a slow disk is no hang
  const std::string folder = checkpoint::step_folder(output.output_dir, state_.global_step);
  best_->saving(state_.global_step, folder);
  state_.best_model_checkpoint = best_->checkpoint();
  Value own = Value::make_object({{"step", Value::of(state_.global_step)},
                                  {"samples", Value::of(plan.samples(state_.global_step))}});
  if (best_->value())
    own.set("best", Value::make_object({{"metric", Value::of(*best_->value())},
                                        {"step", Value::of(best_->step())},
                                        {"checkpoint", Value::of(best_->checkpoint())}}));
  if (plateau_) own.set("plateau", plateau_->state());
  if (output.save_state_dict_type == "full" || training_->update().own_optimizer() == nullptr) {
    engine::save_training(*training_, folder, own);
  } else {
    if (!saver_)
      saver_ = std::make_unique<train::Saver>(
          training_->group(), train::SaverOptions{.output_dir = output.output_dir, .in_memory = false});
    engine::save_training_parts(*training_, *saver_, state_.global_step, own);
  }
  train::agree(training_->group(), [&] {
    if (!state_.is_world_process_zero) return;
    checkpoint::RunState saved;
    plan.write_to(saved, state_.global_step);
    saved.log_history = state_.log_history;
    best_->write_to(saved);
    checkpoint::write_trainer_state(folder, saved);
    checkpoint::prune_step_folders(output.output_dir, state_.global_step, output.save_total_limit, best_->checkpoint());
  });
  call(&TrainerCallback::on_save, folder);
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
