#include <tessera/config/rules/validate_mup.h>

#include <tessera/config/core/rule_checks.h>

namespace tessera::config {
namespace {

class MupRules : RuleChecks {
 public:
  MupRules(const Resolved& resolved, Problems& problems) : RuleChecks(resolved, problems) {}

  void check() {
    if (!c_.model.use_mup) return;
    if (!c_.model.model_name_or_path.empty())
      problem({"use_mup"}, said("use_mup"), " is for models from scratch (--config_name): the config.json of ",
              c_.model.model_name_or_path, " specifies whether its weights were initialized that way; remove it");
    const OptimizerKind optim = c_.optimization.optim;
    if (const std::string why = no_mup_beside(optim); !why.empty())
      problem({"use_mup", "optim"}, said("use_mup"), " with ", said("optim"), " ", optim, ": ", why);
  }
};

}  // namespace

std::string no_mup_beside(OptimizerKind optim) {
  if (optim != OptimizerKind::adafactor && optim != OptimizerKind::lamb && optim != OptimizerKind::lars) return "";
  return "it scales rates by the norms of the weights, so they would not scale correctly with the width; use adamw, "
         "adam, sgd, lion or muon";
}

void validate_mup(const Resolved& resolved, Problems& problems) { MupRules(resolved, problems).check(); }

void unused_mup(const Resolved& resolved, const Unused& unused) {
  if (resolved.values.model.use_mup) return;
  for (const char* name :
       {"mup_base_hidden_size", "mup_embedding_mult", "mup_output_mult", "mup_base_head_dim", "mup_attn_scale_power"})
    unused(name, "--use_mup is not given");
}

}  // namespace tessera::config
