#pragma once
/// \file
/// The one writer: checkpoints of a running training, and the models that it leaves.
///
///   save()       all ranks copy: weights go whole to the rank that writes them (layout/owners.h), optimizer
///                states stay where they are. The step goes on after this copy.
///   thread       each rank writes its files into checkpoint-N.tmp.PID, forces them to the disk, reads them back
///   advance()    when all ranks have ended (ended(), which the loop sums up before every step): they tell each other
///                what they wrote; rank 0's thread writes indexes and manifest, renames the folder, and only then
///                removes old checkpoints
///   advance()    again: every rank knows that the checkpoint exists
///
/// SHARDED: every rank writes what it holds, while the training goes on. FULL: rank 0 writes everything in whole
/// tensors, as the others send it messages of 1 MiB; of a pipeline, the first rank of each stage. A finished model is
/// FULL, without states; its files go into a folder that may hold other things (ModelFolder).
///
/// When anything fails on any rank, at any of these points, the checkpoint is dropped on all of them: the temporary
/// folder goes, what was there before is untouched, training goes on, and the outcome says why. The layout of the
/// folder: docs/checkpoints.md.

#include <tessera/base/value.h>
#include <tessera/checkpoint/shard_file.h>
#include <tessera/checkpoint/staging.h>
#include <tessera/comm/group.h>
#include <tessera/optim/optimizer.h>
#include <tessera/parallel/fully_shard.h>
#include <tessera/train/saving/save_plan.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tessera::train {

/// What became of a save; the same on every rank but for the times, which are this rank's.
struct SaveOutcome {
  std::int64_t step = 0;       ///< that was saved
  std::string folder;          ///< where it is, or would have been
  std::string error = {};      ///< why there is none; empty: it was written
  std::int64_t bytes = 0;      ///< those of all ranks' tensors
  double stall_seconds = 0;    ///< that the training waited for this save: the copy, agreeing, and what finish() waited
  double write_seconds = 0;    ///< write and fsync of this rank's files
  std::int64_t own_bytes = 0;  ///< those of this rank's files
};

/// Where checkpoints are written, and whether the training goes on meanwhile.
struct SaverOptions {
  std::string output_dir;  ///< where checkpoint-STEP is made; empty: every save names its folder
  bool in_memory =
      true;  ///< copy, and write beside the training; false: written before save() returns, and nothing is kept
};

/// A model in a folder that may hold other things (checkpoints, metrics, an older model): its files are written into
/// FOLDER/model.tmp and published when all of them are on the disk (checkpoint::publish_files). There is no manifest.
struct ModelFolder {
  /// The names of files that belonged to an older model; they go when the new one is there.
  std::function<bool(const std::string& name)> replaces;
  /// Called on rank 0's writing thread with the names of all files that are about to be published; may be empty.
  std::function<void(const std::vector<std::string>& names)> before_publishing = {};
};

/// Everything of a save that is not a tensor.
struct SaveContents {
  std::int64_t step = 0;  ///< optimizer steps done: the folder's number
  SaveForm form = {};     ///< which tensors, in which files
  /// The checkpoint's folder, which is replaced if it is there; it is written as FOLDER.tmp. Empty:
  /// OUTPUT_DIR/checkpoint-STEP.
  std::string folder = {};
  /// Set: not a checkpoint but a model, in `folder`.
  std::optional<ModelFolder> model = {};
  /// Writes the small files (configuration, tokenizer, states) into the folder; called on rank 0 by the writing thread,
  /// with values of its own.
  std::function<std::vector<format::ManifestFile>(const std::string& folder)> small_files = {};
  /// Called on rank 0 by the writing thread once the folder has its name: removes old checkpoints. What it throws is a
  /// warning.
  std::function<void()> prune = {};
};

/// All ranks of a group have one. All members are to be called by one thread; those marked collective by all ranks at
/// the same point.
class Saver {
 public:
  /// Collective. Removes what runs that died while saving have left in the output folder.
  Saver(const comm::Group& group, SaverOptions options);
  /// Ends the thread; an unfinished checkpoint is dropped.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  const std::string& output_dir() const { return options_.output_dir; }  ///< SaverOptions::output_dir
  bool beside_training() const { return options_.in_memory; }            ///< the step goes on while files are written
  /// A save is under way, the same on every rank.
  bool busy() const { return phase_ != Phase::idle; }
  /// This rank has done its part of the present phase (or failed).
  bool ended() const { return busy() && ended_.load(std::memory_order_acquire); }
  /// What became of the last save that has ended; empty: none has.
  const std::optional<SaveOutcome>& last() const { return last_; }

  /// Makes the memory for copies beside the training, so that not even the first save waits for fresh pages. Optional;
  /// the first save makes what is missing. Collective.
  void prepare(const SavedModel& model);
  /// Copies and starts; not busy. Collective. Failures are kept for advance(); throws only when the ranks can no longer
  /// talk.
  void save(const Sharded& sharded, const optim::Optimizer& optimizer, SaveContents contents) {
    save({{.sharded = &sharded, .states = held_states(sharded, optimizer)}}, std::move(contents));
  }
  /// The same of several models, each in files of its own stems. Everything that `models` refer to outlives the save.
  void save(std::vector<SavedModel> models, SaveContents contents);
  /// Goes on to the next phase, once every rank has ended(). Collective. The outcome, when this was the last phase.
  std::optional<SaveOutcome> advance();
  /// Waits until nothing is under way. Collective. The outcome, if anything was.
  std::optional<SaveOutcome> finish();

 private:
  enum class Phase { idle, writing, publishing };
  struct Job;

  struct Part;

  void start_thread(std::function<void()> work);
  bool writes() const;
  void make_files();
  void copy();
  void write_own();
  void publish(const std::vector<Value>& reports);
  SaveOutcome end(std::string errors);
  void remove_leftovers();

  comm::Group group_;
  SaverOptions options_;
  std::int64_t writer_pid_ = 0;  // rank 0's, part of the temporary folder's name
  Phase phase_ = Phase::idle;
  checkpoint::StagingBuffer staging_;
  std::unique_ptr<Job> job_;
  std::optional<SaveOutcome> last_;
  std::vector<std::string> leftovers_;  // temporary folders of dropped checkpoints that could not be removed yet
  std::string error_;                   // what was wrong with this rank's part; written by the thread before ended_
  std::atomic<bool> ended_ = false, cancelled_ = false;
  std::thread thread_;
};

/// Saves before it returns, and keeps no copy. `contents` names its folder. Collective; where it fails every rank
/// throws, rank 0 an Error with the reason, and what was in the folder before is unharmed.
void save_now(const comm::Group& group, std::vector<SavedModel> models, SaveContents contents);

}  // namespace tessera::train
