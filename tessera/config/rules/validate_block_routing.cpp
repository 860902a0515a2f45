#include <tessera/config/core/rule_checks.h>
#include <tessera/config/rules/block_routing.h>

namespace tessera::config {
namespace {

class BlockRoutingRules : RuleChecks {
 public:
  BlockRoutingRules(const Resolved& resolved, Problems& problems) : RuleChecks(resolved, problems) {}

  void check() {
    if (!c_.optimization.progressive_layer_drop.empty()) check("progressive_layer_drop");
    if (!c_.optimization.data_efficiency.empty()) check("data_efficiency");
  }

 private:
  void check(const char* name) {
    const OptimizationConfig& o = c_.optimization;
    const auto refuse = [&](bool given, const char* other, const char* why) {
      if (given) problem({name, other}, said(name), " contradicts ", said(other), ": ", why);
    };
    constexpr const char* whole =
        "tokens and blocks are skipped where blocks and rows are whole; shard the model with --fsdp full_shard instead";
    refuse(c_.parallel.pp_size > 1, "pp_size", whole);
    refuse(c_.parallel.tp_size > 1, "tp_size", whole);
    refuse(c_.parallel.cp_size > 1, "cp_size", whole);
    refuse(o.fp8_format != Fp8Format::none, "fp8_format",
           "a linear layer that is skipped in a step has no maximum for that step; remove one of them");
    refuse(!o.compression_training.empty(), "compression_training",
           "an input that is skipped in a step has no range for that step; remove one of them");
    refuse(o.preference_loss != PreferenceLoss::none, "preference_loss",
           "the reference model would skip other parts of the model; remove one of them");
  }
};

}  // namespace

void validate_block_routing(const Resolved& resolved, Problems& problems) {
  BlockRoutingRules(resolved, problems).check();
}

}  // namespace tessera::config
