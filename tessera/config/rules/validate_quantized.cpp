#include <tessera/config/rules/validate_quantized.h>

#include <tessera/base/file.h>
#include <tessera/config/core/rule_checks.h>

namespace tessera::config {
namespace {

bool has_adapters(const ModelConfig& model) {
  return !model.model_name_or_path.empty() && path_exists(path_join(model.model_name_or_path, "adapter_config.json"));
}

class QuantizedRules : RuleChecks {
 public:
  QuantizedRules(const Resolved& resolved, Problems& problems) : RuleChecks(resolved, problems) {}

  void check() {
    const ModelConfig& m = c_.model;
    if (m.load_in_4bit && m.load_in_8bit)
      return problem({"load_in_4bit", "load_in_8bit"}, said("load_in_4bit"), " contradicts ", said("load_in_8bit"),
                     ": a weight has one format; use only one of them");
    if (m.load_in_4bit) quantized("load_in_4bit");
    if (m.load_in_8bit) quantized("load_in_8bit");
  }

 private:
  void quantized(const char* name) {
    if (c_.model.lora_r == 0 && !has_adapters(c_.model))
      problem({name, "lora_r"}, said(name),
              " needs adapters: quantized weights are frozen, since a training step is smaller than the distance "
              "between their values; use --lora_r 16 (--use_peft), or remove it");
    if (c_.parallel.tp_size > 1)
      problem(
          {name, "tp_size"}, said(name), " with --tp_size ", c_.parallel.tp_size,
          ": blocks of quantized weights cannot be cut; use --tp_size 1, data parallelism or pipelines (--pp_size)");
    if (c_.optimization.fp8_format != Fp8Format::none)
      problem({name, "fp8_format"}, said(name), " contradicts ", said("fp8_format"), " ", c_.optimization.fp8_format,
              ": the first stores quantized weights of the blocks' linear layers, the second rounds them at every "
              "step; remove one of them");
    if (c_.device == Device::cuda)
      problem({name, "device"}, said(name),
              " with --device cuda: quantized weights are implemented only on the CPU; use --device cpu, or remove it");
  }
};

}  // namespace

void validate_quantized(const Resolved& resolved, Problems& problems) { QuantizedRules(resolved, problems).check(); }

void unused_quantized(const Resolved& resolved, const Unused& unused) {
  if (resolved.values.model.load_in_4bit) return;
  for (const char* name : {"bnb_4bit_quant_type", "bnb_4bit_use_double_quant", "bnb_4bit_compute_dtype"})
    unused(name, "--load_in_4bit is not given");
}

}  // namespace tessera::config
