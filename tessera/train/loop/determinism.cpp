#include <tessera/train/loop/determinism.h>

#include <tessera/config/core/run_config.h>

#include <ATen/Context.h>

#include <cstdlib>

namespace tessera::train {

RunConfig with_full_determinism(RunConfig config) {
  if (!config.optimization.full_determinism) return config;
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(false);  // it only helps to find bugs and does not change results
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);
  const ParallelConfig& p = config.parallel;
  const bool cut_rows = p.ep_size > 1 && p.tp_size * p.cp_size > 1;
  const bool excluded = cut_rows || p.threads_per_process > 1 || config.sharding.grad_compression != "none" ||
                        config.sharding.reduce_dtype != FloatType::fp32 || config.optimization.auto_find_batch_size ||
                        !config.optimization.average_tokens_across_devices;
  if (!excluded) config.parallel.deterministic_reduce = true;
  return config;
}

}  // namespace tessera::train
