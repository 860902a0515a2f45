#include <tessera/train/core/checkpoint_manager.h>

#include <utility>

#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/checkpoint/folder.h>
#include <tessera/comm/heartbeat.h>
#include <tessera/config/sections/output_config.h>

namespace tessera::train {

CheckpointManager::CheckpointManager(comm::Group group, const OutputConfig& output, const checkpoint::RunState* resumed,
                                     std::function<void(const SaveOutcome&)> saved)
    : group_(std::move(group)), output_(output), best_(output, resumed), saved_(std::move(saved)) {}

void CheckpointManager::open(bool full) {
  // an asynchronous full save would need a copy of everything on one rank
  const bool beside = output_.async_save && !full;
  if (on_disk_ && on_disk_->beside_training() == beside) return;
  on_disk_.reset();
  on_disk_ = std::make_unique<Saver>(group_, SaverOptions{.output_dir = output_.output_dir, .in_memory = beside});
}

void CheckpointManager::open_memory(const std::string& folder) {
  in_memory_ = std::make_unique<Saver>(group_, SaverOptions{.output_dir = folder, .in_memory = output_.async_save});
}

void CheckpointManager::save(std::int64_t step, const SaveForm& form, const Fill& fill) {
  if (busy() && busy_ == on_disk_.get() && output_.async_save_when_busy == WhenBusy::skip) {
    if (group_.rank() == 0)
      log::warning("step ", step,
                   " is not saved: the checkpoint before it is still being written (--async_save_when_busy skip)");
    return;
  }
  finish();
  const comm::LifeState saving(launch::RankState::saving);  // a slow disk is not a hang
  best_.saving(step, checkpoint::step_folder(output_.output_dir, step));
  open(form.full);
  start(*on_disk_, {.step = step, .form = form}, output_.save_total_limit, fill);
}

void CheckpointManager::save_in_memory(std::int64_t step, const Fill& fill) {
  if (busy()) return;
  const comm::LifeState saving(launch::RankState::saving);
  start(*in_memory_, {.step = step}, 1, fill);
}

void CheckpointManager::start(Saver& saver, SaveContents contents, std::int64_t keep, const Fill& fill) {
  contents.prune = [folder = saver.output_dir(), step = contents.step, keep, best = best_.checkpoint()] {
    checkpoint::prune_step_folders(folder, step, keep, best);
  };
  std::vector<SavedModel> models = fill(contents);
  busy_ = &saver;
  saver.save(std::move(models), std::move(contents));
  if (!saver.beside_training()) finish();
}

void CheckpointManager::advance() {
  if (const auto outcome = busy_->advance()) end(*outcome);
}

void CheckpointManager::finish() {
  if (!busy()) return;
  const comm::LifeState saving(launch::RankState::saving);
  if (const auto outcome = busy_->finish()) end(*outcome);
}

void CheckpointManager::close() {
  finish();
  on_disk_.reset();
}

void CheckpointManager::end(const SaveOutcome& outcome) {
  const bool in_memory = std::exchange(busy_, nullptr) == in_memory_.get();
  if (!outcome.error.empty() && group_.rank() == 0)
    log::warning("step ", outcome.step, in_memory ? " is not kept in memory" : " is not saved",
                 ", and training continues", in_memory ? ": " : "; earlier checkpoints are unharmed: ", outcome.error);
  if (in_memory) return;
  if (outcome.error.empty())
    saved_step_ = outcome.step;
  else
    best_.not_saved(outcome.folder);
  saved_(outcome);
}

}  // namespace tessera::train
