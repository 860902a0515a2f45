// Saves checkpoints, tracks the best one, and writes the finished model.

#include <tessera/train/loop/training_loop.h>

#include <algorithm>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/checkpoint/files.h>
#include <tessera/comm/long_phase.h>
#include <tessera/launch/cli/environment.h>
#include <tessera/train/loop/restart.h>
#include <tessera/train/saving/stage_parts.h>

namespace tessera::train {
namespace {

/// " (1.39 GiB, training waited 0.12 s, written in 0.93 s)"
std::string describe(const SaveOutcome& outcome) {
  if (outcome.bytes == 0) return "";
  std::string text = concat(" (", format_bytes(static_cast<std::uint64_t>(outcome.bytes)), ", training waited ",
                            format_real(outcome.stall_seconds, 3), " s");
  if (outcome.write_seconds > 0)
    text += concat(", rank 0 wrote ", format_bytes(static_cast<std::uint64_t>(outcome.own_bytes)), " in ",
                   format_real(outcome.write_seconds, 3), " s");
  return text + ")";
}

}  // namespace

void TrainingLoop::open_checkpoints() {
  const OutputConfig& output = setup_.config.output;
  checkpoints_.open(saves_whole());
  if (output.save_strategy != SaveStrategy::no) checkpoints_.saver()->prepare(model_.core.saved_model());
  if (output.checkpoint_in_memory == 0) return;
  const std::string folder = comm::all_gather_text(world_.group(), launch::read_rank_environment().memory_folder)[0];
  const char* const missing = folder.empty() ? "no tessera agent provides memory for it (--max_restarts 1 or more)"
                              : world_.local_size() != world_.size()
                                  ? "it requires all ranks on one host, but they are on several"
                              : setup_.lora ? "adapters are small: save them with --save_steps"
                                            : nullptr;
  if (missing == nullptr)
    checkpoints_.open_memory(folder);
  else if (world_.rank() == 0)
    log::warning("--checkpoint_in_memory has no effect: ", missing);
}

/// Called after a step and its evaluation; `best`: the evaluation is the best so far.
void TrainingLoop::save_if_due(bool best) {
  const bool to_disk = plan().saves_after(step_) || (best && setup_.config.output.save_strategy == SaveStrategy::best);
  if (!to_disk && !(checkpoints_.has_memory() && step_ % setup_.config.output.checkpoint_in_memory == 0)) return;
  update_.settle();
  to_disk ? save() : save_in_memory();
}

void TrainingLoop::save() {
  replicas_.before_save(step_);
  renew_output_lock();
  bring_back();
  clock_.enter(Phase::other, "save");
  const bool with_optimizer = !setup_.config.output.save_only_model;
  checkpoints_.save(step_, {.optimizer = with_optimizer, .full = saves_whole()},
                    [&](SaveContents& contents) { return fill(contents); });
  clock_.enter(Phase::other);
}

void TrainingLoop::save_in_memory() {
  replicas_.before_save(step_);
  clock_.enter(Phase::other, "save in memory");
  checkpoints_.save_in_memory(step_, [&](SaveContents& contents) { return fill(contents); });
  clock_.enter(Phase::other);
}

/// Prevents saving into a folder that now belongs to another job.
void TrainingLoop::renew_output_lock() {
  run_on_all_ranks(world_.group(), [&] {
    if (output_) output_->renew_lock();
  });
}

/// A run that trains adapters saves only these, under PEFT's names.
std::vector<SavedModel> TrainingLoop::fill(SaveContents& contents) {
  if (output_) {
    checkpoint::RunState state = run_state();
    state.model_only = !contents.form.optimizer;
    contents.small_files = OutputFolder::small_files(setup_, std::move(state));
  }
  SavedModel model = model_.core.saved_model();
  if (setup_.lora) {
    model.weights_stem = checkpoint::kAdapterWeightsStem;
    model.weights_prefix = checkpoint::kAdapterPrefix;
    model.one_file = true;
    const std::vector<std::string>& kept = setup_.lora->kept_embeddings;
    if (!kept.empty()) model.untrained = frozen_tensors(model_.sharded());
    std::erase_if(model.untrained, [&](const UntrainedTensor& tensor) {
      return std::find(kept.begin(), kept.end(), tensor.name) == kept.end();
    });
    if (setup_.lora->ties_embeddings)  // stored under the head's name as well, so that any PEFT version finds both
      for (const ShardedParameter& trained : model_.sharded().named_parameters())
        if (trained.name == setup_.model->tied_parameter() && !is_of_earlier_stage(model_.sharded(), trained.name))
          model.untrained.push_back(copy_of(model_.sharded(), trained, "lm_head.weight"));
    for (UntrainedTensor& tensor : model.untrained) tensor.name = concat(checkpoint::kAdapterPrefix, tensor.name);
  } else {
    model.untrained = frozen_tensors(model_.sharded());  // biases that influence the choice of experts
    put_in_writing_order(model.untrained);
  }
  return {std::move(model)};
}

void TrainingLoop::saved(const SaveOutcome& outcome) {
  if (outcome.error.empty()) journal_.note(concat("saved ", outcome.folder, describe(outcome)));
  write_report();
}

/// The run ends with the best model that it has saved.
void TrainingLoop::load_best_model() {
  const std::string folder = checkpoints_.best().checkpoint_to_load(world_.rank());
  if (folder.empty()) return;
  clock_.enter(Phase::other, "load");
  const comm::LongPhase phase("loading the best model");
  run_on_all_ranks(world_.group(), [&] { load_trained_weights(*setup_.model, model_.sharded(), folder); });
  journal_.note(concat("the best model (step ", checkpoints_.best().step(), ", ",
                       format_real(*checkpoints_.best().value(), 6), ") was loaded from ", folder));
  clock_.enter(Phase::other);
}

void TrainingLoop::save_final_model() {
  SaveContents contents{
      .step = step_,
      .form = {.optimizer = false, .full = true, .finite = false},
      .folder = setup_.config.output.output_dir,
      // Replaces files of an older model that a run has written; keeps a user's files of the same names.
      .model = ModelFolder{
          .replaces =
              [this](const std::string& name) {
                return is_part_of_model(name) && output_ && output_->files().holds(name);
              },
          // Called before publishing, so that a run killed in between does not leave a file that would be mistaken for
          // the user's.
          .before_publishing = [this](const std::vector<std::string>& names) { output_->note_new_files(names); }}};
  renew_output_lock();
  std::vector<SavedModel> models = fill(contents);
  save_now(world_.group(), std::move(models), std::move(contents));
  {
    const comm::LongPhase phase("merging adapters");
    if (output_) output_->save_merged(setup_);
  }
  numbers_.sample(output_.has_value());
}

checkpoint::RunState TrainingLoop::run_state() const {
  checkpoint::RunState state;
  plan().write_to(state, step_);
  state.evaluation_due = evaluation_due_;
  model_.core.write_to(state, setup_.config);
  state.job = this_restart().job;
  state.basis = to_json(setup_.basis);
  setup_.features.each(&RunFeature::save, state);
  state.log_history = journal_.log_history();
  checkpoints_.best().write_to(state);
  state.num_input_tokens_seen = numbers_.tokens_since_step_0();
  state.total_flos = numbers_.flops_per_token() * static_cast<double>(state.num_input_tokens_seen);
  return state;
}

}  // namespace tessera::train
