#include <tessera/train/reporting/utilization.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <numeric>

#include <tessera/base/clock.h>
#include <tessera/models/frozen/quantize.h>
#include <tessera/nn/gemm.h>
#include <tessera/train/saving/save_plan.h>

namespace tessera::train {

MemoryByKind memory_by_kind(const torch::nn::Module& model, const SavedModel& trained, std::int64_t process_bytes,
                            std::int64_t peak_bytes, std::int64_t allocated_peak) {
  const auto bytes = [](const at::Tensor& tensor) {
    return tensor.defined() ? static_cast<std::int64_t>(tensor.nbytes()) : 0;
  };
  const ShardingMemory held = trained.sharded->memory();
  MemoryByKind kinds = {
      process_bytes, held.shards, held.gradients, 0, held.whole + held.flat_gradients + held.pool, 0, 0};
  for (const at::Tensor& buffer : model.buffers()) kinds[1] += bytes(buffer);
  kinds[1] += models::quantized_sizes(model).bytes;
  for (const HeldState& state : trained.states) kinds[3] += state.bytes();
  std::int64_t in_files = held.offloaded;  // their resident pages count as reserve
  for (const std::size_t kind : {3u, 1u, 2u}) {
    const std::int64_t part = std::min(in_files, kinds[kind]);
    kinds[kind] -= part;
    in_files -= part;
  }
  kinds[5] = std::max<std::int64_t>(0, allocated_peak - (kinds[1] + kinds[2] + kinds[3] + kinds[4]));
  std::int64_t rest = peak_bytes;
  for (std::int64_t& kind : kinds) {
    kind = std::min(kind, rest);
    rest -= kind;
  }
  kinds.back() = rest;
  return kinds;
}

std::int64_t allocated_bytes(const MemoryByKind& kinds) {
  return std::accumulate(kinds.begin() + 1, kinds.end() - 1, std::int64_t{0});
}

double measured_peak_flops(c10::Device device, bool bf16) {
  if (!device.is_cpu()) return 0;
  const std::int64_t n = at::get_num_threads() <= 2 ? 384 : 768;  // large enough to keep the threads busy
  const at::NoGradGuard no_grad;
  const auto options = at::TensorOptions().dtype(bf16 ? at::kBFloat16 : at::kFloat);
  const at::Tensor a = at::ones({n, n}, options), b = at::ones({n, n}, options), c = at::empty({n, n});
  const auto product = [&] { (bf16 ? nn::multiply_half : nn::multiply)(c, a, b, false); };  // the model's own product
  // measuring longer would only cost time, before every run and on every rank
  constexpr std::int64_t enough_ns = 10'000'000;
  const std::int64_t started_ns = monotonic_ns();
  product();
  std::int64_t best_ns = 0;
  for (int i = 0; i < 10; ++i) {  // on a shared machine only the best run is meaningful
    const std::int64_t begin_ns = monotonic_ns();
    if (i > 1 && begin_ns - started_ns > enough_ns) break;
    product();
    const std::int64_t ns = std::max<std::int64_t>(1, monotonic_ns() - begin_ns);
    best_ns = best_ns == 0 ? ns : std::min(best_ns, ns);
  }
  return 2.0 * n * n * n / (static_cast<double>(best_ns) * 1e-9);
}

}  // namespace tessera::train
