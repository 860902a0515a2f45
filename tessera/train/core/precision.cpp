#include <tessera/train/core/precision.h>

#include <tessera/base/text.h>
#include <tessera/config/core/run_config.h>
#include <tessera/nn/gemm.h>

namespace tessera::train {
namespace {

std::optional<at::ScalarType> choose(const RunConfig& config, bool bf16, bool fp16) {
  if (config.sharding.param_dtype != FloatType::fp32) return std::nullopt;
  return bf16 ? std::optional(at::kBFloat16) : fp16 ? std::optional(at::kHalf) : std::nullopt;
}

}  // namespace

std::optional<at::ScalarType> training_precision(const RunConfig& config) {
  return choose(config, config.optimization.bf16, config.optimization.fp16);
}

std::optional<at::ScalarType> evaluation_precision(const RunConfig& config) {
  const OptimizationConfig& o = config.optimization;
  if (o.bf16_full_eval || o.fp16_full_eval) return choose(config, o.bf16_full_eval, o.fp16_full_eval);
  return training_precision(config);
}

std::string precision_warning(const RunConfig& config, c10::DeviceType device) {
  const OptimizationConfig& o = config.optimization;
  const FloatType gathered = config.sharding.param_dtype;
  const bool narrow = gathered != FloatType::fp32;
  const bool bf16 = narrow ? gathered == FloatType::bf16 : o.bf16 || (!o.fp16 && o.bf16_full_eval);
  if (!bf16 && !narrow && !o.fp16 && !o.fp16_full_eval) return {};
  if (device != c10::kCPU || nn::has_instructions(bf16 ? at::kBFloat16 : at::kHalf)) return {};
  const char* const type = bf16 ? "bf16" : "fp16";
  const std::string lacks =
      concat("this processor has no ", type, " instructions (", bf16 ? "AVX512-BF16 or AMX" : "AVX512-FP16", "), so ");
  if (narrow)
    return concat("--param_dtype ", type, ": ", lacks,
                  "products of parameters gathered in this type take many times as long as in fp32; remove the flag");
  return concat("--", type, o.bf16 || o.fp16 ? "" : "_full_eval", ": ", lacks, "products round their operands to ",
                type, " and multiply in fp32, and your own modules compute in fp32, which saves no time",
                o.fp16 ? " (the loss scale still applies)" : "", "; remove the flag");
}

}  // namespace tessera::train
