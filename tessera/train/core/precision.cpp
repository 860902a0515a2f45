#include <tessera/train/core/precision.h>

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

}  // namespace tessera::train
