// Checkpoints, the best of them, and the finished model.

#include <tessera/train/loop/training_loop.h>

#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/checkpoint/files.h>
#include <tessera/checkpoint/folder.h>
#include <tessera/comm/life.h>
#include <tessera/config/core/stored.h>
#include <tessera/launch/cli/environment.h>
#include <tessera/parallel/replicas.h>

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

/// Collective.
void TrainingLoop::open_savers() {
  const OutputConfig& output = setup_.config.output;
  const bool beside = output.async_save && !saves_whole();  // one rank would have to keep a copy of everything
  saver_.emplace(world_.group(), SaverOptions{.output_dir = output.output_dir, .in_memory = beside});
  if (output.save_strategy != SaveStrategy::no) saver_->prepare(*sharded_, *optimizer_);
  if (output.checkpoint_in_memory == 0) return;
  const std::string folder = comm::all_gather_text(world_.group(), launch::read_rank_environment().memory_folder)[0];
  const char* const missing = folder.empty() ? "no agent of tessera holds memory for it (--max_restarts 1 or more)"
                              : world_.local_size() != world_.size()
                                  ? "it is for ranks of one host, and these are on several"
                              : setup_.lora ? "adapters are small: save them with --save_steps"
                                            : nullptr;
  if (missing == nullptr)
    memory_saver_.emplace(world_.group(), SaverOptions{.output_dir = folder, .in_memory = output.async_save});
  else if (world_.rank() == 0)
    log::warning("--checkpoint_in_memory has no effect: ", missing);
}

void TrainingLoop::save() {
  const OutputConfig& output = setup_.config.output;
  if (saving_ != nullptr && !is_memory(saving_) && output.async_save_when_busy == WhenBusy::skip) {
    journal_.note(
        concat("step ", step_,
               " is not saved: the checkpoint before it is still being written (--async_save_when_busy skip)"));
    return;
  }
  finish_saving();
  const comm::LifeState saving(launch::RankState::saving);
  enter(Phase::other, "save");
  best_.saving(step_, checkpoint::step_folder(output.output_dir, step_));
  save_with(*saver_, output.save_total_limit);
  enter(Phase::other);
}

void TrainingLoop::save_in_memory() {
  if (saving_ != nullptr) return;  // the next one is due soon
  const comm::LifeState saving(launch::RankState::saving);
  enter(Phase::other, "save in memory");
  save_with(*memory_saver_, 1);
  enter(Phase::other);
}

/// A run that trains adapters saves them alone, as PEFT names them.
SavedModel TrainingLoop::saved_model() const {
  SavedModel model{.sharded = &*sharded_, .states = held_states(*sharded_, *optimizer_)};
  if (setup_.lora) {
    model.weights_stem = checkpoint::kAdapterWeightsStem;
    model.weights_prefix = checkpoint::kAdapterPrefix;
  }
  return model;
}

void TrainingLoop::save_with(Saver& saver, std::int64_t keep) {
  const bool in_memory = is_memory(&saver);
  SaveContents contents{
      .step = step_,
      .form = {.optimizer = in_memory || !setup_.config.output.save_only_model, .full = !in_memory && saves_whole()}};
  if (output_) {
    checkpoint::RunState state = run_state();
    state.model_only = !contents.form.optimizer;
    contents.prune = [folder = saver.output_dir(), step = step_, keep, best = state.best_model_checkpoint] {
      checkpoint::prune_step_folders(folder, step, keep, best);
    };
    contents.small_files = OutputFolder::small_files(setup_, std::move(state));
  }
  saving_ = &saver;
  saver.save({saved_model()}, std::move(contents));
  if (!saver.beside_training()) finish_saving();
}

void TrainingLoop::finish_saving() {
  if (saving_ == nullptr) return;
  const comm::LifeState saving(launch::RankState::saving);  // a slow disk is no hang
  if (const auto outcome = saving_->finish()) saved(*outcome);
}

void TrainingLoop::saved(const SaveOutcome& outcome) {
  const bool in_memory = is_memory(std::exchange(saving_, nullptr));
  if (in_memory) {
    if (!outcome.error.empty() && world_.rank() == 0)
      log::warning("step ", outcome.step, " is not kept in memory, and training goes on: ", outcome.error);
    return;
  }
  if (outcome.error.empty()) {
    saved_step_ = outcome.step;
    journal_.note(concat("saved ", outcome.folder, describe(outcome)));
  } else {
    best_.not_saved(outcome.folder);
    if (world_.rank() == 0) log::warning(not_saved_text(outcome));
  }
  write_report();
}

/// What the run leaves is the best model that it has saved.
void TrainingLoop::load_best_model() {
  const std::string folder = best_.checkpoint_to_load(world_.rank());
  if (folder.empty()) return;
  enter(Phase::other, "load");
  agree(world_.group(), [&] { load_trained_weights(*setup_.model, *sharded_, folder); });
  journal_.note(concat("the best model (step ", best_.step(), ", ", format_real(*best_.value(), 6),
                       ") was loaded from ", folder));
  enter(Phase::other);
}

void TrainingLoop::save_final_model() {
  SaveContents contents{.step = step_,
                        .form = {.optimizer = false, .full = true, .finite = false},
                        .folder = setup_.config.output.output_dir,
                        .model = ModelFolder{checkpoint::is_model_file}};
  if (output_) {
    checkpoint::RunState state = run_state();
    state.model_only = true;
    contents.small_files = OutputFolder::small_files(setup_, std::move(state));
  }
  const SaveOutcome outcome = save_now(world_.group(), {saved_model()}, std::move(contents));
  agree(world_.group(), [&] {
    if (!outcome.error.empty() && world_.rank() == 0)
      throw Error(
          concat("the model could not be saved; what was in ", outcome.folder, " before is unharmed: ", outcome.error));
  });
  if (output_) output_->save_merged(setup_);
  if (output_ || divided()) last_sample_ = sample_text(setup_);
}

checkpoint::RunState TrainingLoop::run_state() const {
  checkpoint::RunState state;
  plan_.write_to(state, step_);
  state.seed = static_cast<std::uint64_t>(setup_.config.optimization.seed);
  state.log_history = journal_.log_history();
  state.optimizer_steps = optimizer_->steps();
  if (const optim::LossScale* scale = core_.loss_scale()) {
    state.loss_scale = scale->state().scale;
    state.loss_scale_good_steps = scale->state().good_steps;
    state.loss_scale_skipped_steps = scale->state().skipped_steps;
    state.loss_scale_hysteresis = scale->state().hysteresis;
  }
  state.schedule_state = core_.schedule_state();
  state.model_only = setup_.config.output.save_only_model;
  best_.write_to(state);
  state.num_input_tokens_seen = tokens_ + (setup_.resume ? setup_.resume->num_input_tokens_seen : 0);
  state.total_flos = flops_per_token() * static_cast<double>(state.num_input_tokens_seen);
  state.configuration = config::stored_configuration(setup_.config);
  state.mesh =
      Value::make_object({{"ranks", Value::of(static_cast<std::int64_t>(world_.size()))},
                          {"strategy", Value::of(word_of(setup_.config.sharding.strategy))},
                          {"shard_ranks", Value::of(static_cast<std::int64_t>(sharded_->shard_ranks()))},
                          {"replicate_ranks", Value::of(static_cast<std::int64_t>(sharded_->replicate_ranks()))}});
  return state;
}

}  // namespace tessera::train
