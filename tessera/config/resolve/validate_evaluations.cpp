#include <tessera/config/resolve/validate_evaluations.h>

#include <tessera/config/core/rule_checks.h>

#include <cmath>
#include <cstdint>

namespace tessera::config {
namespace {

bool saves_best(const RunConfig& config) { return config.output.save_strategy == SaveStrategy::best; }
bool plateau(const RunConfig& config) {
  return config.optimization.lr_scheduler_type == ScheduleType::reduce_lr_on_plateau;
}

class EvaluationRules : RuleChecks {
 public:
  EvaluationRules(const Resolved& resolved, Problems& problems) : RuleChecks(resolved, problems) {}

  void check() {
    if (plateau(c_) && !evaluates())
      problem({"lr_scheduler_type", "eval_strategy"}, said("lr_scheduler_type"),
              " reduce_lr_on_plateau depends on evaluations, but --eval_strategy is no: use --eval_strategy steps or "
              "epoch");
    if (saves_best(c_) && !evaluates())
      problem({"save_strategy", "eval_strategy"}, said("save_strategy"),
              " best saves after evaluations, but --eval_strategy is no: use --eval_strategy steps or epoch");
    if (c_.output.load_best_model_at_end && !saves_best(c_)) saves_what_was_evaluated();
  }

 private:
  bool evaluates() const { return c_.output.eval_strategy != Interval::no; }

  void saves_what_was_evaluated() {
    const OutputConfig& o = c_.output;
    const std::string flag = said("load_best_model_at_end");
    if (word_of(o.eval_strategy) != word_of(o.save_strategy))
      return problem(
          {"load_best_model_at_end", "eval_strategy", "save_strategy"}, flag,
          " needs an --eval_strategy that equals --save_strategy, so that evaluated states are saved; they are ",
          o.eval_strategy, " and ", o.save_strategy, " (--save_strategy best works with either)");
    if (!evaluates())
      return problem({"load_best_model_at_end", "eval_strategy"}, flag,
                     " needs evaluations and checkpoints: use --eval_strategy and --save_strategy steps or epoch");
    if (o.eval_strategy != Interval::steps) return;
    const double eval_steps = o.eval_steps > 0 ? o.eval_steps : o.logging_steps;
    if ((eval_steps < 1) != (o.save_steps < 1))
      problem({"load_best_model_at_end", "save_steps", "eval_steps"}, flag, " needs a --save_steps (", o.save_steps,
              ") that is a multiple of --eval_steps (", eval_steps,
              "): set both as numbers of steps, or both as shares");
    else if (!is_multiple(o.save_steps, eval_steps))
      problem({"load_best_model_at_end", "save_steps", "eval_steps"}, flag,
              " needs a --save_steps that is a multiple of ", "--eval_steps, so that evaluated states are saved; ",
              o.save_steps, " is not a multiple of ", eval_steps);
  }

  /// Shares are compared to six decimal places, as in transformers.
  static bool is_multiple(double whole, double part) {
    const double scale = part < 1 ? 1e6 : 1;
    const auto a = static_cast<std::int64_t>(std::llround(whole * scale)),
               b = static_cast<std::int64_t>(std::llround(part * scale));
    return b > 0 && a % b == 0;
  }
};

}  // namespace

void validate_evaluations(const Resolved& resolved, Problems& problems) { EvaluationRules(resolved, problems).check(); }

bool is_metric_of_evaluations(std::string_view metric) {
  if (metric.starts_with("eval_")) metric.remove_prefix(5);
  return metric.empty() || metric == "loss" || metric == "perplexity" || metric == "accuracy" || metric == "f1";
}

std::vector<FollowsEvaluations> what_follows_evaluations(const RunConfig& config) {
  std::vector<FollowsEvaluations> found;
  if (plateau(config)) found.push_back({"lr_scheduler_type", " reduce_lr_on_plateau", false});
  if (saves_best(config)) found.push_back({"save_strategy", " best", true});
  if (config.output.load_best_model_at_end) found.push_back({"load_best_model_at_end", "", true});
  return found;
}

}  // namespace tessera::config
