#pragma once
/// \file
/// The files of a run's output folder. Rank 0 alone owns one of these.

#include <tessera/format/manifest/manifest.h>
#include <tessera/train/loop/setup.h>
#include <tessera/train/reporting/latest_job.h>
#include <tessera/train/reporting/metrics.h>
#include <tessera/train/reporting/model_card.h>
#include <tessera/train/reporting/output_lock.h>
#include <tessera/train/reporting/report.h>
#include <tessera/train/reporting/run_files.h>

#include <functional>
#include <string>
#include <vector>

namespace tessera::train {

class OutputFolder {
 public:
  /// Makes the folder ready (prepare_output_folder). Throws InputError when the folder cannot be made, when
  /// another job writes there, or when it holds what a run would have to replace and no run has written.
  explicit OutputFolder(const Setup& setup);

  /// Appends a line to metrics.jsonl.
  void append(const Value& line);
  /// A sample of the lines so far.
  MetricsLines metrics() const { return metrics_.lines(); }
  /// Takes the folder's lock anew where the folder was moved or removed (OutputLock::renew).
  void renew_lock() { lock_.renew(); }
  std::string path(const std::string& name) const;
  RunFiles& files() { return files_; }  ///< what runs have written here
  /// Notes those of `names` that no file in the folder has: the run is about to write them.
  void note_new_files(const std::vector<std::string>& names);

  /// What writes everything of a checkpoint, or of the finished model, but tensors: a Hugging Face folder, or, of a run
  /// that trains LoRA adapters, a PEFT folder. It holds values of its own, for another thread.
  static std::function<std::vector<format::ManifestFile>(const std::string& folder)> small_files(
      const Setup& setup, checkpoint::RunState state);
  /// --lora_merge: the adapters that the folder holds and their base model, merged into merged/.
  void save_merged(const Setup& setup);
  /// README.md of the finished model, and of the merged one; a person's stays, with a note. That one cannot be written
  /// is a warning.
  void write_cards(CardFacts facts);
  /// Begins to write report.html, or will when the one before is written; returns at once. That it cannot be written
  /// is a warning.
  void write_report(Report report);
  /// Returns when the last report is written.
  void finish_report() { reports_.finish(); }

 private:
  OutputLock lock_;
  std::string folder_;
  RunFiles files_;
  MetricsFile metrics_;
  LatestJob reports_{"tessera-report"};  // last: it ends before the folder is given up
};

}  // namespace tessera::train
