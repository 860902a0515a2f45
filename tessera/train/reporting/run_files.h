#pragma once
/// \file
/// Which files of an output folder runs of ours have written, so that nothing else is ever removed or replaced. A
/// checkpoint-N says it by its manifest; of everything else OUT/.tessera-files keeps a list, a line for each file,
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

/// The list of one output folder. Rank 0 alone owns one.
class RunFiles {
 public:
  /// Reads OUTPUT_DIR/.tessera-files; none: nothing is known. Throws InputError when it cannot be read.
  explicit RunFiles(std::string output_dir);

  /// `name`: a path inside the output folder.
  bool holds(const std::string& name) const { return names_.contains(name); }
  /// Notes files that are written next, or were written just now, where no other file was before. Throws Error when
  /// the list cannot be written.
  void add(const std::vector<std::string>& names);
  /// The folders inside the output folder that hold files of the list, by paths in it.
  std::set<std::filesystem::path> folders() const;
  /// Removes what the list holds, and folders that are empty then; but not the finished model, which stays until
  /// another one takes its place.
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

/// Makes the output folder ready for a run; rank 0 calls it before anything else is written there. `resume_folder`: the
/// checkpoint that the run goes on from; empty: none. metrics.jsonl is noted as the run's. `first_life`: no restart
/// of the same job.
///
/// --overwrite_output_dir without a checkpoint to go on from: the former run goes, that is, checkpoints that hold
/// nothing but what their manifests list, and the files of the list but for the model. Everything else stays. Throws
/// InputError that names the first path which a run may have to replace and which no run of ours has written; nothing
/// was changed then.
void prepare_output_folder(const OutputConfig& output, const std::string& resume_folder, bool first_life, bool merges);

/// Throws that InputError; changes nothing.
void require_nothing_in_the_way(const OutputConfig& output, const std::string& resume_folder, bool first_life,
                                bool merges);

}  // namespace tessera::train
