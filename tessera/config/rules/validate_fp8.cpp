#include <tessera/config/rules/validate_fp8.h>

#include <tessera/config/core/rule_checks.h>

namespace tessera::config {
namespace {

class Fp8Rules : RuleChecks {
 public:
  Fp8Rules(const Resolved& resolved, Problems& problems) : RuleChecks(resolved, problems) {}

  void check() {
    const OptimizationConfig& o = c_.optimization;
    if (o.fp8_format == Fp8Format::none) return without_fp8();
    if (o.fp16)
      problem({"fp8_format", "fp16"}, said("fp8_format"), " contradicts ", said("fp16"),
              ": with fp8 everything else is computed in bfloat16 or float32; use --bf16 instead, or neither");
    const bool delayed = o.fp8_recipe == Fp8Recipe::delayed, one_scale = delayed || tensorwise();
    for (const char* name : {"fp8_amax_history_len", "fp8_amax_compute_algo"})
      if (!delayed) only_of(name, "delayed, which keeps maxima");
    if (!one_scale) only_of("fp8_margin", "delayed and tensorwise, whose scales are not powers of two");
  }

 private:
  bool tensorwise() const { return c_.optimization.fp8_recipe == Fp8Recipe::tensorwise; }

  void only_of(const char* name, const char* recipes) {
    if (!is_default(name))
      problem({name, "fp8_recipe"}, said(name), " is only for --fp8_recipe ", recipes, ", not to ",
              c_.optimization.fp8_recipe, ": remove it");
  }

  void without_fp8() {
    for (const char* name : {"fp8_recipe", "fp8_amax_history_len", "fp8_amax_compute_algo", "fp8_margin",
                             "num_layers_at_start_in_bf16", "num_layers_at_end_in_bf16"})
      if (!is_default(name))
        problem({name, "fp8_format"}, said(name), " is only for fp8: use --fp8_format (hybrid or e4m3), or remove it");
  }
};

}  // namespace

void validate_fp8(const Resolved& resolved, Problems& problems) { Fp8Rules(resolved, problems).check(); }

}  // namespace tessera::config
