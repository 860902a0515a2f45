#pragma once
/// \file
/// The folders checkpoint-STEP of an output folder: their names, how they are published (whole or not at all), and how
/// they are removed. An output folder belongs to one run at a time, and one of its ranks calls these functions.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::checkpoint {

struct StepFolder {
  std::int64_t step = 0;
  std::string path;
};

/// The folders named checkpoint-STEP, newest first, whole or not. Empty for a missing output folder. `prefix` replaces
/// "checkpoint-".
std::vector<StepFolder> step_folders(const std::string& output_dir, std::string_view prefix = "checkpoint-");

/// Suffix of the name of a checkpoint that was set aside because its bytes differ from what was written; and the
/// folders with that suffix.
inline constexpr const char* damaged_suffix = ".damaged";
std::vector<std::string> damaged_folders(const std::string& output_dir);

/// The first path in a checkpoint's folder (whole, damaged, half written or half deleted) that no save has written;
/// empty: none. A readable manifest lists what was written; otherwise names decide: regular files with names that saves
/// use. Empty for a missing folder.
std::string foreign_path(const std::string& folder);
/// Removes the folder of a checkpoint. Throws Error, and removes nothing, if foreign_path() finds something.
void remove_written(const std::string& folder);
/// Removes the files of checkpoint-N that saves have written, making them invisible in one step. Files that a user
/// added are kept, in a folder of the same name without a manifest.
void remove_checkpoint(const std::string& folder);

/// Whether the folder has a manifest and every file has the listed size (does not read bytes).
bool looks_complete(const std::string& folder);

/// OUTPUT_DIR/checkpoint-STEP, and the sibling folder in which process `pid` (of rank 0) and its peers write it.
std::string step_folder(const std::string& output_dir, std::int64_t step);
std::string writing_folder(const std::string& output_dir, std::int64_t step, std::int64_t pid);
/// Renames `written`, a complete sibling of `target`, to `target`: everything in it is synced to disk first; an
/// existing folder is replaced in one step, and files in it that no save has written (foreign_path) are moved into the
/// new one, under their own names or NAME.kept. Throws Error; the folder is then unchanged, unless only the last step
/// failed (syncing the parent folder to disk).
void publish_written_folder(const std::string& written, const std::string& target);

/// Calls `fill` with the new folder TARGET.tmp and publishes it. If `fill` throws, the folder is removed and nothing
/// else has changed. A leftover of a killed process is removed first; throws Error if it contains other files.
void publish_folder(const std::string& target, const std::function<void(const std::string&)>& fill);

/// Moves the files of `written`, a folder on the same file system, into `target`, which may contain other things:
/// everything is synced to disk, then each file is renamed in one step, tensors first, then their index, then the rest;
/// finally the other files of `target` that `replaces` selects are removed. Replaced and removed files are in `written`
/// afterwards, for the caller to delete. Throws Error; then every file is back in place, unless only the last step
/// failed (syncing `target` to disk). A process killed between two steps leaves new files next to old ones, never half
/// a file.
void publish_files(const std::string& written, const std::string& target,
                   const std::function<bool(const std::string& name)>& replaces);

/// Removes leftovers of runs that died while writing or deleting a checkpoint; skips folders that contain other files,
/// with a warning.
void remove_stale_folders(const std::string& output_dir);

/// Keeps the `keep` newest complete checkpoints, always including that of `saved_step` and `protected_folder` (empty:
/// none; with keep = 1 both stay); deletes the others that have a manifest (remove_checkpoint). Folders without a
/// manifest are not ours and stay. keep <= 0: deletes nothing.
void prune_step_folders(const std::string& output_dir, std::int64_t saved_step, std::int64_t keep,
                        const std::string& protected_folder = "");

}  // namespace tessera::checkpoint
