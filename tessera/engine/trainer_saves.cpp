// What tessera::Trainer writes and reads back: checkpoints, the best of them, the model.

#include <tessera/engine/trainer.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/checkpoint/folder.h>
#include <tessera/comm/life.h>
#include <tessera/engine/folder.h>
#include <tessera/train/setup.h>

namespace tessera {

/// What was evaluated must be saved. (config::validate has these rules for `tessera train`, whose data it knows.)
void Trainer::check_best_model(const train::RunPlan& plan) const {
  const OutputConfig& output = options_.arguments.values.output;
  if (!output.load_best_model_at_end && output.save_strategy != "best") return;
  const char* flag = output.load_best_model_at_end ? "--load_best_model_at_end" : "--save_strategy best";
  if (!options_.eval_dataset || output.eval_strategy == "no")
    throw InputError(concat("Trainer: ", flag,
                            " needs evaluations: give TrainerOptions::eval_dataset and --eval_strategy steps or epoch"));
  if (output.output_dir.empty())
    throw InputError(concat("Trainer: ", flag, " needs a folder for its checkpoints: give --output_dir"));
  if (output.save_strategy == "best") return;
  if (output.eval_strategy != output.save_strategy)
    throw InputError(concat("Trainer: --load_best_model_at_end needs an --eval_strategy that equals --save_strategy, so "
                            "that what was evaluated is saved; they are ",
                            output.eval_strategy, " and ", output.save_strategy,
                            " (--save_strategy best goes with each)"));
  if (output.eval_strategy == "steps" && plan.save_every % plan.eval_every != 0)
    throw InputError(concat("Trainer: --load_best_model_at_end needs a --save_steps that is a multiple of --eval_steps, so "
                            "that what was evaluated is saved; ",
                            plan.save_every, " is no multiple of ", plan.eval_every));
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
