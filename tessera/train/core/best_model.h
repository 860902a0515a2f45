#pragma once
/// \file
/// Tracks the best evaluation so far (metric_for_best_model, greater_is_better) by transformers' rules
/// (Trainer._determine_best_metric) and restores the weights of its checkpoint (load_best_model_at_end).

#include <tessera/checkpoint/run_state.h>
#include <tessera/models/causal_lm.h>
#include <tessera/parallel/fully_shard.h>
#include <tessera/train/reporting/metrics.h>

#include <cstdint>
#include <optional>
#include <string>

namespace tessera {
struct OutputConfig;
}

namespace tessera::train {

/// The reason why evaluations of a classifier (`classifies`) or of a language model lack the metric `name`; empty if
/// they have it.
std::string why_no_metric(const std::string& name, bool classifies);

/// Value of the metric `name`, with or without "eval_": loss, perplexity, or for a classifier loss, accuracy, f1.
/// Throws InputError for other names, which why_no_metric() rejects earlier.
double metric_of(const EvalMetrics& metrics, const std::string& name);

/// The setting greater_is_better. auto: as in transformers, greater is better unless the metric's name ends with
/// "loss"; in addition, less is better for perplexity.
bool greater_is_better(const OutputConfig& config);

/// The best evaluation so far and the checkpoint with its weights. Identical on every rank.
class BestModel {
 public:
  /// `resumed`: state of the run that this one continues, or nullptr.
  BestModel(const OutputConfig& config, const checkpoint::RunState* resumed);

  /// Records an evaluation; returns true if it is the best so far. Does nothing unless the configuration asks for a
  /// best model.
  bool update(const EvalMetrics& metrics);
  /// Same, with the value of whichever metric the configuration names.
  bool update(double value, std::int64_t step);
  /// Call before a checkpoint of this step is written as `folder`.
  void saving(std::int64_t step, const std::string& folder);
  /// Call if the write failed: restores the previous best checkpoint. Evaluations since saving() still count.
  void not_saved(const std::string& folder);
  void write_to(checkpoint::RunState& state) const;  ///< for a checkpoint's run state
  bool wanted() const { return wanted_; }            ///< the configuration asks for a best model
  /// Checkpoint to load at the end of training (load_best_model_at_end); empty: keep the last weights. Warns on rank 0
  /// if the setting is on but no checkpoint was saved.
  std::string checkpoint_to_load(int rank) const;
  /// Folder of the best evaluation that was saved; empty if none was.
  const std::string& checkpoint() const { return checkpoint_; }
  std::int64_t step() const { return step_; }             ///< step of the best evaluation; -1: none recorded
  std::optional<double> value() const { return value_; }  ///< its metric; empty: none recorded

 private:
  bool wanted_, loads_at_end_, greater_is_better_;
  std::string metric_;
  std::optional<double> value_;
  std::int64_t step_ = -1;
  std::string checkpoint_, checkpoint_before_;  // before_: value of checkpoint_ before the last saving()
};

/// Copies FOLDER/STEM.safetensors, or the files that its index names, into a module's parameters (trained and frozen)
/// and buffers. Collective. Throws InputError for weights of another model.
void load_weights(torch::nn::Module& module, Sharded& sharded, const std::string& folder,
                  const std::string& stem = "model");
/// Copies a checkpoint of the same model into the trained parameters. Collective. Throws InputError when a tensor is
/// missing.
void load_trained_weights(models::LanguageModel& model, Sharded& sharded, const std::string& folder);

}  // namespace tessera::train
