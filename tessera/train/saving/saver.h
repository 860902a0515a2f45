#pragma once
/// \file
/// The single writer of checkpoints of a running training and of the final models.
///
///   save()       all ranks copy: weights are sent whole to the rank that writes them (layout/owners.h), optimizer
///                states stay on their ranks. The step continues after this copy.
///   thread       each rank writes its files into checkpoint-N.tmp.PID, syncs them to disk and reads them back
///   advance()    when all ranks have ended (ended(), which the loop sums before every step): they exchange lists of
///                their files; rank 0's thread writes indexes and manifest, renames the folder, and only then removes
///                old checkpoints
///   advance()    again: every rank knows that the checkpoint exists
///
/// SHARDED: every rank writes what it holds, while the training continues. FULL: rank 0 (in a pipeline, the first rank
/// of each stage) writes everything as whole tensors, which the others send in messages of 1 MiB. A finished model is
/// FULL, without states; its files go into a folder that may contain other things (ModelFolder).
///
/// If anything fails on any rank at any of these points, the checkpoint is dropped on all ranks: the temporary folder
/// is removed, earlier contents are untouched, training continues, and the outcome contains the reason. The layout of
/// the folder: docs/checkpoints.md.

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

/// The outcome of a save; identical on every rank except for the times and bytes of this rank.
struct SaveOutcome {
  std::int64_t step = 0;       ///< saved step
  std::string folder;          ///< the folder, even if the save failed
  std::string error = {};      ///< reason of a failure; empty: the save succeeded
  std::int64_t bytes = 0;      ///< bytes of all ranks' tensors
  double stall_seconds = 0;    ///< training time lost to this save: copy, agreement, waits in finish()
  double write_seconds = 0;    ///< write and fsync of this rank's files
  std::int64_t own_bytes = 0;  ///< bytes of this rank's files
};

/// The destination of checkpoints, and whether the training continues while they are written.
struct SaverOptions {
  std::string output_dir;  ///< parent of checkpoint-STEP; empty: every save names its folder
  bool in_memory = true;   ///< copies, and writes in the background; false: writes before save() returns, without a
                           ///< copy
};

/// A model in a folder that may contain other things (checkpoints, metrics, an older model): its files are written into
/// FOLDER/model.tmp and published when all of them are on disk (checkpoint::publish_files). It has no manifest.
struct ModelFolder {
  /// Whether a file belongs to an older model; such files are removed once the new model is complete.
  std::function<bool(const std::string& name)> replaces;
  /// Called on rank 0's writing thread with the names of all files that are about to be published; may be empty.
  std::function<void(const std::vector<std::string>& names)> before_publishing = {};
};

/// All parts of a save except its tensors.
struct SaveContents {
  std::int64_t step = 0;  ///< optimizer steps done; the number in the folder's name
  SaveForm form = {};     ///< which tensors, in which files
  /// The checkpoint's folder, replaced if it exists; written as FOLDER.tmp first. Empty: OUTPUT_DIR/checkpoint-STEP.
  std::string folder = {};
  /// Set to save a model in `folder` instead of a checkpoint.
  std::optional<ModelFolder> model = {};
  /// Writes the small files (configuration, tokenizer, states) into the folder; called on rank 0's writing thread, so
  /// it must own its values.
  std::function<std::vector<format::ManifestFile>(const std::string& folder)> small_files = {};
  /// Called on rank 0's writing thread once the folder has its final name: removes old checkpoints. Its errors only
  /// cause warnings.
  std::function<void()> prune = {};
};

/// Every rank of a group has one. All members must be called by one thread, and the collective ones by all ranks at the
/// same point.
class Saver {
 public:
  /// Collective. Removes files left in the output folder by runs that died while saving.
  Saver(const comm::Group& group, SaverOptions options);
  /// Stops the thread; an unfinished checkpoint is dropped.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  const std::string& output_dir() const { return options_.output_dir; }  ///< SaverOptions::output_dir
  bool beside_training() const { return options_.in_memory; }            ///< the step continues while files are written
  /// Whether a save is in progress; the same on every rank.
  bool busy() const { return phase_ != Phase::idle; }
  /// Whether this rank has finished (or failed) its part of the current phase.
  bool ended() const { return busy() && ended_.load(std::memory_order_acquire); }
  /// The outcome of the last completed save; empty: none.
  const std::optional<SaveOutcome>& last() const { return last_; }

  /// Allocates the memory for background copies, so that not even the first save waits for fresh pages. Optional; the
  /// first save allocates what is missing. Collective.
  void prepare(const SavedModel& model);
  /// Copies and starts writing; must not be busy. Collective. Failures are stored and reported by advance(); throws
  /// only if the ranks can no longer communicate.
  void save(const Sharded& sharded, const optim::Optimizer& optimizer, SaveContents contents) {
    save({{.sharded = &sharded, .states = held_states(sharded, optimizer)}}, std::move(contents));
  }
  /// The same for several models, each in files with its own stems. Everything that `models` refer to must outlive the
  /// save.
  void save(std::vector<SavedModel> models, SaveContents contents);
  /// Starts the next phase; call it when ended() is true on every rank. Collective. Returns the outcome after the last
  /// phase.
  std::optional<SaveOutcome> advance();
  /// Waits until no save is in progress. Collective. Returns the outcome of a save, if there was one.
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
  std::int64_t writer_pid_ = 0;  // process number of rank 0; part of the temporary folder's name
  Phase phase_ = Phase::idle;
  checkpoint::StagingBuffer staging_;
  std::unique_ptr<Job> job_;
  std::optional<SaveOutcome> last_;
  std::vector<std::string> leftovers_;  // temporary folders of dropped checkpoints that could not be removed yet
  std::string error_;                   // error of this rank's part; written by the thread before ended_
  std::atomic<bool> ended_ = false, cancelled_ = false;
  std::thread thread_;
};

/// Saves before it returns and keeps no copy. `contents` specifies its folder. Collective; on failure every rank throws
/// (rank 0's Error has the reason), and the folder's earlier contents are unharmed.
void save_now(const comm::Group& group, std::vector<SavedModel> models, SaveContents contents);

}  // namespace tessera::train
