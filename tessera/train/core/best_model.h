#pragma once
/// \file
/// Which evaluation was the best so far (metric_for_best_model, greater_is_better), by transformers' rules
/// (Trainer._determine_best_metric), and putting the weights of its checkpoint back (load_best_model_at_end).

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

/// Why evaluations of a model, which tells classes apart or not, have no metric of that name; empty: they have.
std::string why_no_metric(const std::string& name, bool classifies);

/// The metric of that name, with or without "eval_": loss, perplexity, of a classifier loss, accuracy, f1. Throws
/// InputError for others (why_no_metric has refused them before).
double metric_of(const EvalMetrics& metrics, const std::string& name);

/// The setting greater_is_better. auto: as in transformers greater is better unless the metric's name ends with "loss";
/// but of perplexity, too, less is better.
bool greater_is_better(const OutputConfig& config);

/// The best evaluation so far, and the checkpoint that has its weights. The same on every rank.
class BestModel {
 public:
  /// `resumed`: what the run's earlier part found, or nullptr.
  BestModel(const OutputConfig& config, const checkpoint::RunState* resumed);

  /// After an evaluation: true when it is the best so far. Nothing is counted unless the configuration asks for a best
  /// model.
  bool update(const EvalMetrics& metrics);
  /// The same with the metric's value, whichever metric the configuration names.
  bool update(double value, std::int64_t step);
  /// A checkpoint of this step is about to be written as `folder`.
  void saving(std::int64_t step, const std::string& folder);
  /// It came to nothing: the best checkpoint is the one before it. Evaluations since saving() count as before.
  void not_saved(const std::string& folder);
  void write_to(checkpoint::RunState& state) const;  ///< for a checkpoint of the run
  bool wanted() const { return wanted_; }            ///< the configuration asks for a best model
  /// What the training is to end with (load_best_model_at_end); empty: with its last weights. Rank 0 is warned where
  /// there is nothing to load though it was asked for.
  std::string checkpoint_to_load(int rank) const;
  /// The folder of the best evaluation that was saved; empty: there is none.
  const std::string& checkpoint() const { return checkpoint_; }
  std::int64_t step() const { return step_; }             ///< the best evaluation's; -1: none counted
  std::optional<double> value() const { return value_; }  ///< its metric; empty: none counted

 private:
  bool wanted_, loads_at_end_, greater_is_better_;
  std::string metric_;
  std::optional<double> value_;
  std::int64_t step_ = -1;
  std::string checkpoint_, checkpoint_before_;  // before_: what checkpoint_ was before the last saving()
};

/// Gives a module, trained or frozen, and its buffers the values of FOLDER/STEM.safetensors, or of the files that its
/// index names. Collective. Throws InputError for weights of another model.
void load_weights(torch::nn::Module& module, Sharded& sharded, const std::string& folder,
                  const std::string& stem = "model");
/// Gives the trained parameters the values of a checkpoint of the same model. Collective. Throws InputError
/// when a tensor is missing.
void load_trained_weights(models::LanguageModel& model, Sharded& sharded, const std::string& folder);

}  // namespace tessera::train
