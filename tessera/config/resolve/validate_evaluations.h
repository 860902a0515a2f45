#pragma once
/// \file
/// What follows the evaluations of a training: the best model, and reduce_lr_on_plateau. One set of rules for `tessera
/// train` and for tessera::Trainer.

#include <string>
#include <string_view>
#include <vector>

namespace tessera {
struct RunConfig;
}

namespace tessera::config {

struct Problems;
struct Resolved;

/// Adds to `problems` what --load_best_model_at_end, --save_strategy best and --lr_scheduler_type reduce_lr_on_plateau
/// need of
/// --eval_strategy, --eval_steps, --save_strategy and --save_steps and do not get. As transformers has it
/// (TrainingArguments.__post_init__); nothing is read or written.
void validate_evaluations(const Resolved& resolved, Problems& problems);

/// Whether `tessera train` computes the metric: loss or perplexity, with eval_ or without; empty: loss.
bool is_metric_of_evaluations(std::string_view metric);

/// A setting that follows the evaluations: load_best_model_at_end; save_strategy with " best".
struct FollowsEvaluations {
  const char* setting;
  const char* value;               ///< the value that follows them, behind a space; "": a switch that is on
  bool needs_checkpoints = false;  ///< what was evaluated must have been saved
};
/// Those that are on.
std::vector<FollowsEvaluations> what_follows_evaluations(const RunConfig& config);

}  // namespace tessera::config
