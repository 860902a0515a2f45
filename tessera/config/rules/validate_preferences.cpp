#include <tessera/config/rules/validate_preferences.h>

#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/config/core/rule_checks.h>
#include <tessera/corpus/data_list.h>

namespace tessera::config {
namespace {

class PreferenceRules : RuleChecks {
 public:
  PreferenceRules(const Resolved& resolved, Problems& problems) : RuleChecks(resolved, problems) {}

  void check() {
    if (loss_ == PreferenceLoss::none) return without_loss();
    parameters();
    reference();
    data();
    batches();
    parallel();
    best_model();
  }

 private:
  void without_loss() {
    for (const char* name : {"preference_beta", "preference_label_smoothing", "preference_sft_weight",
                             "preference_gamma", "gamma_beta_ratio", "ref_model_name_or_path", "max_prompt_length"})
      if (!is_default(name))
        problem({name, "preference_loss"}, said(name),
                " is only for pairs of answers: use --preference_loss (sigmoid is DPO), or remove it",
                name == std::string_view("preference_label_smoothing")
                    ? "; --label_smoothing_factor smooths the targets of a language model"
                    : "");
  }

  void only_for(const char* name, bool fits, const char* which) {
    if (!is_default(name) && !fits)
      problem({name, "preference_loss"}, said(name), " is only for --preference_loss ", which, ", not to ", loss_,
              ": remove it");
  }

  void parameters() {
    const OptimizationConfig& o = c_.optimization;
    only_for("preference_label_smoothing", loss_ == PreferenceLoss::sigmoid || o.preference_label_smoothing == 0,
             "sigmoid");
    only_for("preference_gamma", loss_ == PreferenceLoss::simpo, "simpo");
    if (loss_ == PreferenceLoss::hinge && !is_default("gamma_beta_ratio"))
      problem({"gamma_beta_ratio", "preference_loss"}, said("gamma_beta_ratio"),
              " is SimPO's, whose hinge loss is not implemented: use --preference_loss simpo, which is SimPO's "
              "sigmoid, or remove it for the hinge loss with DPO's margin");
    else
      only_for("gamma_beta_ratio", loss_ == PreferenceLoss::simpo, "simpo");
    if (loss_ == PreferenceLoss::orpo && o.preference_sft_weight > 0)
      problem({"preference_sft_weight", "preference_loss"}, said("preference_sft_weight"),
              ": orpo already includes the chosen answers' cross-entropy, with weight 1: remove it");
    if (o.label_smoothing_factor > 0)
      not_with("label_smoothing_factor",
               "a loss of pairs has no single correct token; remove it, or use --preference_label_smoothing "
               "(sigmoid)");
  }

  void reference() {
    const std::string& folder = c_.model.ref_model_name_or_path;
    const bool needs = needs_reference(loss_);
    only_for("ref_model_name_or_path", needs || folder.empty(), "sigmoid, hinge, ipo, apo_zero and apo_down");
    if (!folder.empty() && needs && !path_exists(path_join(folder, "config.json")) &&
        !path_exists(path_join(folder, "adapter_config.json")))
      problem({"ref_model_name_or_path"}, said("ref_model_name_or_path"), " ", folder,
              ": no model there (nothing is downloaded); use a folder with config.json");
  }

  /// Reports that `name`, which is on, cannot be combined with pairs.
  void not_with(const char* name, const char* why) {
    problem({name, "preference_loss"}, said(name), " cannot be combined with ", said("preference_loss"), ": ", why);
  }

  void data() {
    const DataConfig& d = c_.data;
    if (!d.train_file.empty() && !corpus::may_hold_examples(d.train_file))
      problem({"train_file", "preference_loss"}, "--train_file ", d.train_file,
              ": --preference_loss needs records with prompt, chosen and rejected (.jsonl)");
    if (d.mock_data) not_with("mock_data", "generated tokens are not pairs of answers; remove it");
    if (d.packing) not_with("packing", "a pair is two rows; remove it");
    if (d.streaming)
      not_with("streaming", "the reference's log-probabilities are computed before the first step; remove it");
  }

  void batches() {
    const OptimizationConfig& o = c_.optimization;
    if (o.balance_batches) not_with("balance_batches", "it is not implemented for pairs; remove it");
    if (o.tokens_per_batch > 0)
      not_with("tokens_per_batch", "steps are counted in pairs; use --per_device_train_batch_size");
    if (o.gradient_noise_scale) not_with("gradient_noise_scale", "it is not implemented for pairs; remove it");
  }

  void parallel() {
    const ParallelConfig& p = c_.parallel;
    for (const auto& [name, size] : {std::pair{"pp_size", p.pp_size}, std::pair{"tp_size", p.tp_size},
                                     std::pair{"cp_size", p.cp_size}, std::pair{"ep_size", p.ep_size}})
      if (size > 1)
        problem({name, "preference_loss"}, said(name), " ", size, " cannot be combined with ", said("preference_loss"),
                ": pairs are trained with whole rows and whole layers on each process; use data parallelism (ddp, "
                "zero, fsdp)");
    if (p.deterministic_reduce)
      not_with("deterministic_reduce", "the fixed order of sums is not implemented for losses of pairs; remove it");
  }

  void best_model() {
    const std::string& metric = c_.output.metric_for_best_model;
    if (!metric.empty() && !metric.ends_with("loss"))
      problem({"metric_for_best_model", "preference_loss"}, said("metric_for_best_model"), " ", metric,
              " cannot be combined with ", said("preference_loss"),
              metric.ends_with("perplexity")
                  ? ": a loss of pairs is not a cross-entropy, so it has no perplexity; use loss"
                  : ": pairs of answers have no classes; use loss");
  }

  const PreferenceLoss loss_ = c_.optimization.preference_loss;
};

}  // namespace

bool needs_reference(PreferenceLoss loss) {
  using Loss = PreferenceLoss;
  return loss == Loss::sigmoid || loss == Loss::hinge || loss == Loss::ipo || loss == Loss::apo_zero ||
         loss == Loss::apo_down;
}

void derive_preferences(Resolved& resolved) {
  if (resolved.is_default("gamma_beta_ratio")) return;
  OptimizationConfig& o = resolved.values.optimization;
  if (o.preference_loss == PreferenceLoss::sigmoid) {
    resolved.notes.push_back(concat("preference_loss sigmoid (", resolved.origin("preference_loss"),
                                    ") means simpo with gamma_beta_ratio (", resolved.origin("gamma_beta_ratio"),
                                    "), which only SimPO's trainer has"));
    o.preference_loss = PreferenceLoss::simpo;
    resolved.origins["preference_loss"] = Origin::derived("gamma_beta_ratio is SimPO's");
  }
  if (o.preference_loss != PreferenceLoss::simpo || !resolved.is_default("preference_gamma")) return;
  o.preference_gamma = o.gamma_beta_ratio * o.preference_beta;
  resolved.origins["preference_gamma"] = Origin::derived("gamma_beta_ratio x preference_beta");
}

void validate_preferences(const Resolved& resolved, Problems& problems) { PreferenceRules(resolved, problems).check(); }

}  // namespace tessera::config
