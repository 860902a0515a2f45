#include <tessera/config/rules/validate_fill_in_middle.h>

#include <tessera/config/core/rule_checks.h>

namespace tessera::config {
namespace {

class FillInMiddleRules : RuleChecks {
 public:
  FillInMiddleRules(const Resolved& resolved, Problems& problems) : RuleChecks(resolved, problems) {}

  void check() {
    const DataConfig& d = c_.data;
    if (!d.fim_data) return;
    if (d.mock_data)
      problem({"fim_data", "mock_data"}, said("fim_data"), " rearranges texts, but the tokens of ", said("mock_data"),
              " are not texts: remove one of them");
    if (c_.optimization.preference_loss != PreferenceLoss::none)
      problem({"fim_data", "preference_loss"}, said("fim_data"), " rearranges blocks of text, but ",
              said("preference_loss"), " compares answers: remove one of them");
    if (!d.fim_split_sample.empty() && d.fim_fragment_rate < 0)
      problem({"fim_split_sample", "fim_fragment_rate"}, said("fim_split_sample"),
              " needs --fim_fragment_rate, the share of the fragments that are rearranged (1: all)");
  }
};

}  // namespace

void validate_fill_in_middle(const Resolved& resolved, Problems& problems) {
  FillInMiddleRules(resolved, problems).check();
}

void unused_fill_in_middle(const Resolved& resolved, const Unused& unused) {
  const DataConfig& d = resolved.values.data;
  if (d.fim_data) {
    if (d.fim_split_sample.empty()) unused("fim_fragment_rate", "--fim_split_sample is not given");
    return;
  }
  for (const char* name :
       {"fim_rate", "fim_spm_rate", "fim_split_sample", "fim_fragment_rate", "fim_no_prefix", "fim_prefix_token",
        "fim_middle_token", "fim_suffix_token", "fim_pad_token", "fim_eod_token"})
    unused(name, "--fim_data is not given");
}

}  // namespace tessera::config
