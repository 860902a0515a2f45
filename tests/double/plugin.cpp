// The function tables of libtessera_cuda.so on the double.
//
// Environment: DOUBLE_ONE_GPU: all devices report the same GPU, so that ranks share it.
#include <tessera/comm/backend_plugin.h>
#include <tessera/comm/c10d/c10d_backend.h>
#include <tessera/kernels/cuda/adamw.h>
#include <tessera/layout/backends.h>
#include <tessera/optim/device_kernels.h>

#include <tests/double/launch.h>
#include <tests/double/nccl.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace cuda_double {
namespace {

using tessera::comm::BackendPlugin;
using tessera::comm::BackendRequest;
using tessera::optim::DeviceKernels;
namespace cuda = tessera::kernels::cuda;

std::string device_identity(int index) {
  return "double:" + std::to_string(std::getenv("DOUBLE_ONE_GPU") != nullptr ? 0 : index);
}

std::shared_ptr<tessera::comm::Backend> make_backend(const BackendRequest& request) {
  set_device(request.device.index());  // as the real plug-in does
  return tessera::comm::make_c10d_backend(make_nccl(request), {.name = request.name,
                                                               .kind = std::string(tessera::layout::Nccl::row.name),
                                                               .device = request.device,
                                                               .owner = nullptr});
}

void add_exact_squares(std::span<const cuda::SquareRange> ranges, cuda::Real type, std::int64_t* words) {
  KernelArguments arguments("add_exact_squares");
  std::vector<cuda::SquareRange> seen;
  for (const auto& [data, numel] : ranges)
    seen.push_back({arguments.read(cuda::ConstReals{data, type}, numel).data, numel});
  std::int64_t* const sums = arguments.update(words, tessera::kernels::exact_words);
  if (arguments.enqueue()) cuda::add_exact_squares(seen, type, sums, nullptr);
}

template <class Range, auto kernel>
void adamw(std::span<const Range> ranges, const cuda::StepScalars* scalars) {
  KernelArguments arguments("adamw");
  std::vector<Range> seen(ranges.begin(), ranges.end());
  for (Range& r : seen) {
    r.p = arguments.update(r.p, r.n);
    r.g = arguments.read(r.g, r.n);
    r.m = arguments.update(r.m, r.n);
    r.v = arguments.update(r.v, r.n);
  }
  scalars = arguments.read(scalars, 1);
  if (arguments.enqueue()) kernel(seen, scalars, nullptr);
}

void round_to_bf16(const float* from, std::uint16_t* to, std::int64_t n, const tessera::kernels::Bf16Rounding& rounding,
                   int which) {
  KernelArguments arguments("round_to_bf16");
  from = arguments.read(from, n);
  to = arguments.write(to, n);
  if (arguments.enqueue()) cuda::round_to_bf16(from, to, n, rounding, which, nullptr);
}

void carry_words(std::int64_t* words) {
  KernelArguments arguments("carry_words");
  words = arguments.update(words, tessera::kernels::exact_words);
  if (arguments.enqueue()) cuda::carry_words(words, nullptr);
}

void form_step_scalars(const std::int64_t* words, double max_norm, cuda::StepScalars* scalars) {
  KernelArguments arguments("form_step_scalars");
  words = arguments.read(words, tessera::kernels::exact_words);
  scalars = arguments.write(scalars, 1);
  if (arguments.enqueue()) cuda::form_step_scalars(words, max_norm, scalars, nullptr);
}

constexpr BackendPlugin backend = {BackendPlugin::current_abi, &device_count, &device_identity, &make_backend};
constexpr DeviceKernels kernels = {DeviceKernels::current_abi,
                                   &adamw<cuda::AdamwRange, &cuda::adamw>,
                                   &adamw<cuda::AdamwBf16Range, &cuda::adamw_bf16>,
                                   &round_to_bf16,
                                   &add_exact_squares,
                                   &carry_words,
                                   &form_step_scalars};

}  // namespace
}  // namespace cuda_double

extern "C" const void* tessera_backend_plugin() { return &cuda_double::backend; }
extern "C" const void* tessera_optimizer_kernels() { return &cuda_double::kernels; }
