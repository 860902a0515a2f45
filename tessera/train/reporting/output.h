#pragma once
/// \file
/// The files of a run's output folder. Rank 0 alone owns one of these.

#include <tessera/format/manifest/manifest.h>
#include <tessera/train/loop/setup.h>
#include <tessera/train/reporting/metrics.h>
#include <tessera/train/reporting/report.h>

#include <functional>
#include <string>
#include <vector>

namespace tessera::train {

class OutputFolder {
 public:
  /// Creates the folder; with overwrite_output_dir, what a former run left there (checkpoints, metrics, report) is
  /// removed. Throws InputError when the folder cannot be made.
  explicit OutputFolder(const Setup& setup);

  MetricsFile& metrics() { return metrics_; }
  std::string path(const std::string& name) const;

  /// Writes checkpoint-STEP and returns its path. `trained`: the weights; a run that trains LoRA adapters writes them
  /// alone (a PEFT folder).
  std::string save_checkpoint(const Setup& setup, checkpoint::TensorSources trained, const checkpoint::RunState& state);
  /// What writes everything of a checkpoint folder but tensors; it holds values of its own, for another thread.
  static std::function<std::vector<format::ManifestFile>(const std::string& folder)> checkpoint_settings(
      const Setup& setup, checkpoint::RunState state);
  /// Writes the model, or its LoRA adapters, into the folder itself: what a user loads afterwards.
  void save_model(const Setup& setup, checkpoint::TensorSources trained, const checkpoint::RunState& state);
  /// --lora_merge: the adapters that save_model has written and their base model, merged into merged/.
  void save_merged(const Setup& setup);
  void write_report(const Report& report);  ///< that it cannot be written is a warning

 private:
  std::string folder_;
  MetricsFile metrics_;
};

}  // namespace tessera::train
