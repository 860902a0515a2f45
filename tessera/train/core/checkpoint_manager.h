#pragma once
/// \file
/// The checkpoints of a run, shared by `tessera train` and tessera::Trainer: when a save may start, which checkpoints
/// are kept, and which is the best. A checkpoint that cannot be written is dropped with a warning and training
/// continues.
///
///   while (training) {
///     if (manager.ended() on every rank) manager.advance();     // during the training (--async_save)
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

/// All members are collective except the accessors and ended(). Not thread-safe.
class CheckpointManager {
 public:
  /// Fills in the contents to save: returns the models and, on rank 0, sets contents.small_files. Called when no other
  /// write is in progress; best() already refers to the new checkpoint.
  using Fill = std::function<std::vector<SavedModel>(SaveContents& contents)>;

  /// `output` must outlive the manager. `resumed`: state that the run resumes from, or nullptr. `saved`: called with
  /// the outcome of each checkpoint-N, the same on every rank.
  CheckpointManager(comm::Group group, const OutputConfig& output, const checkpoint::RunState* resumed,
                    std::function<void(const SaveOutcome&)> saved);

  /// Removes files left behind by runs that died while saving, and allocates the memory for asynchronous copies.
  /// Optional: otherwise the first save() does it. `full`: SaveForm::full of the later saves.
  void open(bool full);
  /// save_in_memory() writes its checkpoints into this folder (--checkpoint_in_memory).
  void open_memory(const std::string& folder);
  bool has_memory() const { return in_memory_ != nullptr; }  ///< open_memory() was called
  Saver* saver() { return on_disk_.get(); }                  ///< writes checkpoint-N; nullptr before open()

  /// Writes OUTPUT_DIR/checkpoint-STEP. If another checkpoint is still being written, waits for it or, with
  /// --async_save_when_busy skip, skips this one with a warning. With whole tensors or without --async_save the
  /// checkpoint is complete when this returns.
  void save(std::int64_t step, const SaveForm& form, const Fill& fill);
  /// Does nothing while anything is being written: the next in-memory checkpoint is due soon.
  void save_in_memory(std::int64_t step, const Fill& fill);

  bool busy() const { return busy_ != nullptr; }  ///< the same on every rank
  /// Whether this rank has finished its part of the current write; call advance() when all ranks have.
  bool ended() const { return busy() && busy_->ended(); }
  void advance();  ///< moves on to the next phase. Collective
  /// Waits until nothing is being written.
  void finish();
  /// finish(), and frees the memory of asynchronous copies.
  void close();

  std::int64_t saved_step() const { return saved_step_; }  ///< newest checkpoint-N that was written; -1: none
  BestModel& best() { return best_; }                      ///< receives the evaluations of the training
  const BestModel& best() const { return best_; }          ///< read-only access

 private:
  void start(Saver& saver, SaveContents contents, std::int64_t keep, const Fill& fill);
  void end(const SaveOutcome& outcome);

  comm::Group group_;
  const OutputConfig& output_;
  BestModel best_;
  std::function<void(const SaveOutcome&)> saved_;
  std::unique_ptr<Saver> on_disk_, in_memory_;
  Saver* busy_ = nullptr;  // the writer that is active; the same on every rank
  std::int64_t saved_step_ = -1;
};

}  // namespace tessera::train
