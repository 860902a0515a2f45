#pragma once
/// \file
/// Tracks the files of an output folder that our runs have written, so that nothing else is ever removed or replaced. A
/// checkpoint-N is identified by its manifest; for all other files OUT/.tessera-files keeps a list, one line per file,
/// written before the file itself.

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {
struct OutputConfig;
}

namespace tessera::train {

inline constexpr const char* kRunFilesList = ".tessera-files";
inline constexpr const char* kMergedFolder = "merged";  ///< --lora_merge

/// The list of one output folder. Only rank 0 has one.
class RunFiles {
 public:
  /// Reads OUTPUT_DIR/.tessera-files; a missing file means an empty list. Throws InputError if it cannot be read.
  explicit RunFiles(std::string output_dir);

  /// `name`: a path inside the output folder.
  bool holds(const std::string& name) const { return names_.contains(name); }
  /// Records files that are about to be written, or have just been written, at paths where no other file existed.
  /// Throws Error if the list cannot be written.
  void add(const std::vector<std::string>& names);
  /// The folders inside the output folder that contain listed files, as relative paths.
  std::set<std::filesystem::path> folders() const;
  /// Removes the listed files and folders that become empty, except the finished model, which stays until another one
  /// replaces it.
  void remove_all();

 private:
  void write() const;

  std::string output_dir_;
  std::set<std::string> names_;
};

/// Whether a file of that name belongs to a finished model: weights, configuration, tokenizer.
bool is_part_of_model(std::string_view name);
/// Whether a run may write a file or a folder of that name into its output folder.
bool is_run_name(std::string_view name);

/// Prepares the output folder for a run; rank 0 calls it before anything else is written there. `resume_folder`: the
/// checkpoint that the run resumes from; empty: none. Records metrics.jsonl as the run's. `first_life`: not a restart
/// of the same job.
///
/// --overwrite_output_dir without a checkpoint to resume from removes the previous run: checkpoints that contain only
/// files of their manifests, and the listed files except the model. Everything else is kept. Throws InputError with the
/// first path that a run might have to replace and that none of our runs has written; in that case nothing was changed.
void prepare_output_folder(const OutputConfig& output, const std::string& resume_folder, bool first_life, bool merges);

/// Throws the same InputError, without changing anything.
void require_nothing_in_the_way(const OutputConfig& output, const std::string& resume_folder, bool first_life,
                                bool merges);

}  // namespace tessera::train
