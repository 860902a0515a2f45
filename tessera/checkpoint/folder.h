#pragma once
/// \file
/// The folders checkpoint-STEP of an output folder: their names, how one appears (whole or not at all) and disappears.
/// An output folder belongs to one run at a time, and one rank of it calls these functions.

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

/// The folders named checkpoint-STEP, newest first, whole or not. A missing output folder has none. `prefix`: what
/// their names begin with.
std::vector<StepFolder> step_folders(const std::string& output_dir, std::string_view prefix = "checkpoint-");

/// What is added to the name of a checkpoint that is set aside, because its bytes are not what was written; and the
/// folders so named.
inline constexpr const char* damaged_suffix = ".damaged";
std::vector<std::string> damaged_folders(const std::string& output_dir);

/// The first path in a folder of a checkpoint (whole, damaged, half written or half deleted) that no save has written;
/// empty: none. A manifest that can be read says what was written; without one names say it: regular files such as
/// saves write. A folder that is not there holds nothing.
std::string foreign_path(const std::string& folder);
/// Removes such a folder. Throws Error, and removes nothing, where foreign_path() finds something.
void remove_written(const std::string& folder);
/// Removes what saves have written in checkpoint-N, out of sight in one step. What else a person has put there stays,
/// in a folder of that name without a manifest.
void remove_checkpoint(const std::string& folder);

/// Whether the folder has a manifest and every file in it has the listed size (its bytes are not read).
bool looks_complete(const std::string& folder);

/// OUTPUT_DIR/checkpoint-STEP, and the folder beside it in which the process `pid` (of rank 0) and its peers write it.
std::string step_folder(const std::string& output_dir, std::int64_t step);
std::string writing_folder(const std::string& output_dir, std::int64_t step, std::int64_t pid);
/// Gives a folder that is complete, and lies beside `target`, that name: everything in it is forced to the disk first;
/// a folder of that name is replaced in one step, and what no save has written there (foreign_path) goes over into the
/// new one, under its own name or NAME.kept. Throws Error; then the folder is where it was, unless only the last
/// step failed (forcing the folder that holds `target` to the disk).
void publish_written_folder(const std::string& written, const std::string& target);

/// Calls `fill` with the new folder TARGET.tmp and publishes it. When `fill` throws, it is removed and nothing else has
/// changed. One that a killed process has left is removed first, unless something else is in it: then Error is thrown.
void publish_folder(const std::string& target, const std::function<void(const std::string&)>& fill);

/// Gives the files of `written`, a folder on the same file system, their places in `target`, which may hold other
/// things: everything is forced to the disk, then file after file gets its name in one step, tensors first, then their
/// index, then what remains; last, the other files of `target` that `replaces` names are taken away. What was replaced
/// and taken away lies in `written` afterwards, for the caller to remove. Throws Error; then every file is where it
/// was, unless only the last step failed (forcing `target` to the disk). A process that is killed between two steps
/// leaves the new names beside the old ones, never half of a file.
void publish_files(const std::string& written, const std::string& target,
                   const std::function<bool(const std::string& name)>& replaces);

/// Removes what runs that died while writing or deleting a checkpoint have left behind; with a warning, not where
/// something else is in it.
void remove_stale_folders(const std::string& output_dir);

/// Keeps the `keep` newest complete checkpoints, among them always that of `saved_step` and `protected_folder` (empty:
/// none; with keep = 1 both stay); deletes the other ones that have a manifest (remove_checkpoint). Folders without a
/// manifest are not ours and stay. keep <= 0: nothing is deleted.
void prune_step_folders(const std::string& output_dir, std::int64_t saved_step, std::int64_t keep,
                        const std::string& protected_folder = "");

}  // namespace tessera::checkpoint
