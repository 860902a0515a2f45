#pragma once
/// \file
/// Rules for settings that depend on a training's evaluations (best model, reduce_lr_on_plateau), shared by `tessera
/// train` and tessera::Trainer.

#include <string>
#include <string_view>
#include <vector>

namespace tessera {
struct RunConfig;
}

namespace tessera::config {

struct Problems;
struct Resolved;

/// Adds a problem where --load_best_model_at_end, --save_strategy best or --lr_scheduler_type reduce_lr_on_plateau
/// lacks the --eval_strategy, --eval_steps, --save_strategy or --save_steps that it needs. As in transformers
/// (TrainingArguments.__post_init__). Does no I/O.
void validate_evaluations(const Resolved& resolved, Problems& problems);

/// Whether `tessera train` computes the metric: loss or perplexity, with or without "eval_"; empty: loss.
bool is_metric_of_evaluations(std::string_view metric);

/// A setting that depends on evaluations: load_best_model_at_end; save_strategy with " best".
struct FollowsEvaluations {
  const char* setting;
  const char* value;               ///< the value that depends on them, after a space; "": a switch that is on
  bool needs_checkpoints = false;  ///< the evaluated states must have been saved
};
/// The entries that `config` enables.
std::vector<FollowsEvaluations> what_follows_evaluations(const RunConfig& config);

}  // namespace tessera::config
