#pragma once
/// \file
/// The checkpoints of a run, the same for `tessera train` and tessera::Trainer: when one may begin, which of them stay,
/// which is the best, and that one which cannot be written is dropped with a warning while the training goes on.
///
///   while (training) {
///     if (manager.ended() on every rank) manager.advance();     // beside the training (--async_save)
///     ...
///     manager.save(step, form, [&](SaveContents& contents) { ... });
///   }
///   manager.finish();

#include <tessera/checkpoint/run_state.h>
#include <tessera/comm/group.h>
#include <tessera/train/core/best_model.h>
#include <tessera/train/saving/saver.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tessera {
struct OutputConfig;
}

namespace tessera::train {

/// Collective but for the accessors and ended(). Not thread-safe.
class CheckpointManager {
 public:
  /// What is saved: the models, and, on rank 0, contents.small_files. It is called when nothing else is being written,
  /// and best() knows the checkpoint already.
  using Fill = std::function<std::vector<SavedModel>(SaveContents& contents)>;

  /// `output` outlives the manager. `resumed`: what the run goes on from, or nullptr. `saved`: called with what has
  /// become of a checkpoint-N, the same on every rank.
  CheckpointManager(comm::Group group, const OutputConfig& output, const checkpoint::RunState* resumed,
                    std::function<void(const SaveOutcome&)> saved);

  /// Removes what runs that died while saving have left, and makes memory for copies beside the training. Optional: the
  /// first save() does it otherwise. `full`: SaveForm::full of the saves to come.
  void open(bool full);
  /// Checkpoints that save_in_memory() makes lie in this folder (--checkpoint_in_memory).
  void open_memory(const std::string& folder);
  bool has_memory() const { return in_memory_ != nullptr; }  ///< open_memory() was called
  Saver* saver() { return on_disk_.get(); }                  ///< writes checkpoint-N; nullptr before open()

  /// OUTPUT_DIR/checkpoint-STEP. It waits for one that is being written, or, with --async_save_when_busy skip, is left
  /// out with a warning. Whole tensors, or without --async_save: it is there when this returns.
  void save(std::int64_t step, const SaveForm& form, const Fill& fill);
  /// Nothing where anything is being written: the next one is due soon.
  void save_in_memory(std::int64_t step, const Fill& fill);

  bool busy() const { return busy_ != nullptr; }  ///< the same on every rank
  /// This rank has done its part of what is being written; advance() when all have.
  bool ended() const { return busy() && busy_->ended(); }
  void advance();  ///< to the next phase. Collective
  /// Waits until nothing is being written.
  void finish();
  /// finish(), and the memory of copies is given back.
  void close();

  std::int64_t saved_step() const { return saved_step_; }  ///< the newest checkpoint-N that was written; -1: none
  BestModel& best() { return best_; }                      ///< is told of evaluations by the training
  const BestModel& best() const { return best_; }          ///< to be asked only

 private:
  void start(Saver& saver, SaveContents contents, std::int64_t keep, const Fill& fill);
  void end(const SaveOutcome& outcome);

  comm::Group group_;
  const OutputConfig& output_;
  BestModel best_;
  std::function<void(const SaveOutcome&)> saved_;
  std::unique_ptr<Saver> on_disk_, in_memory_;
  Saver* busy_ = nullptr;  // the one of the two that writes; the same on every rank
  std::int64_t saved_step_ = -1;
};

}  // namespace tessera::train
