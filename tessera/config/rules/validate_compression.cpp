#include <tessera/config/rules/validate_compression.h>

#include <tessera/base/error.h>
#include <tessera/config/core/rule_checks.h>
#include <tessera/config/rules/compression.h>

namespace tessera::config {
namespace {

class CompressionRules : RuleChecks {
 public:
  CompressionRules(const Resolved& resolved, Problems& problems) : RuleChecks(resolved, problems) {}

  void check() {
    const OptimizationConfig& o = c_.optimization;
    if (o.compression_training.empty()) return;
    Compression asked;
    try {
      asked = parse_compression(o.compression_training);
    } catch (const InputError& error) {
      return problem({"compression_training"}, error.what());
    }
    if (c_.model.lora_r > 0)
      refuse("lora_r", "only trained weights are quantized or copied from selected layers; remove one of them");
    if (asked.layers && c_.model.model_name_or_path.empty())
      problem({"compression_training", "model_name_or_path"}, said("compression_training"),
              ": layer_reduction copies layers of a model; set --model_name_or_path to its folder");
    if (asked.rounds()) rounding();
  }

 private:
  void rounding() {
    if (c_.parallel.tp_size > 1)
      refuse("tp_size",
             "a process would round its part of a weight by that part's range alone; divide the model with --pp_size "
             "or --fsdp full_shard instead");
    if (c_.optimization.fp8_format != Fp8Format::none)
      refuse("fp8_format", "both determine how operands of the same products are rounded; remove one of them");
    if (c_.optimization.preference_loss != PreferenceLoss::none)
      refuse("preference_loss", "the reference model would be quantized, too; remove one of them");
  }

  void refuse(const char* name, const char* why) {
    problem({"compression_training", name}, said("compression_training"), " contradicts ", said(name), ": ", why);
  }
};

}  // namespace

void validate_compression(const Resolved& resolved, Problems& problems) {
  CompressionRules(resolved, problems).check();
}

}  // namespace tessera::config
