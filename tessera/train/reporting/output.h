#pragma once
/// \file
/// The files of a run's output folder. Only rank 0 has one.

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
  /// Prepares the folder (prepare_output_folder). Throws InputError if the folder cannot be created, if another job
  /// writes there, or if it contains files that the run would have to replace but that were not written by a run.
  explicit OutputFolder(const Setup& setup);

  /// Appends a line to metrics.jsonl.
  void append(const Value& line);
  /// Returns a sample of the lines so far.
  MetricsLines metrics() const { return metrics_.lines(); }
  /// Takes the folder's lock again if the folder was moved or removed (OutputLock::renew).
  void renew_lock() { lock_.renew(); }
  std::string path(const std::string& name) const;
  RunFiles& files() { return files_; }  ///< files that runs have written here
  /// Records the `names` that do not exist in the folder yet, because the run is about to write them.
  void note_new_files(const std::vector<std::string>& names);

  /// Returns a function that writes all files of a checkpoint or of the finished model except tensors: a Hugging Face
  /// folder or, for a run that trains LoRA adapters, a PEFT folder. It owns copies of its values, for use in another
  /// thread.
  static std::function<std::vector<format::ManifestFile>(const std::string& folder)> small_files(
      const Setup& setup, checkpoint::RunState state);
  /// --lora_merge: merges the folder's adapters and their base model into merged/.
  void save_merged(const Setup& setup);
  /// Writes README.md of the finished model and of the merged one; keeps a user's file, with a note. A failure to write
  /// only causes a warning.
  void write_cards(CardFacts facts);
  /// Starts writing report.html, or queues it until the previous one is written; returns immediately. A failure to
  /// write only causes a warning.
  void write_report(Report report);
  /// Waits until the last report is written.
  void finish_report() { reports_.finish(); }

 private:
  OutputLock lock_;
  std::string folder_;
  RunFiles files_;
  MetricsFile metrics_;
  LatestJob reports_{"tessera-report"};  // declared last so that it ends before the folder is released
};

}  // namespace tessera::train
