// The tables of libtessera_cuda.so on the double.
//
// Environment: DOUBLE_ONE_GPU: all devices say that they are one GPU, so that ranks share it.
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
  std::int64_t* const sums = arguments.update(words, cuda::exact_words);
  arguments.enqueue();
  cuda::add_exact_squares(seen, type, sums, nullptr);
}

void adamw(float* p, const float* g, float* m, float* v, std::int64_t n, const tessera::kernels::AdamwArgs& args) {
  KernelArguments arguments("adamw");
  p = arguments.update(p, n);
  g = arguments.read(g, n);
  m = arguments.update(m, n);
  v = arguments.update(v, n);
  arguments.enqueue();
  cuda::adamw(p, g, m, v, n, args, nullptr);
}

constexpr BackendPlugin backend = {BackendPlugin::current_abi, &device_count, &device_identity, &make_backend};
constexpr DeviceKernels kernels = {DeviceKernels::current_abi, &adamw, &add_exact_squares};

}  // namespace
}  // namespace cuda_double

extern "C" const void* tessera_backend_plugin() { return &cuda_double::backend; }
extern "C" const void* tessera_optimizer_kernels() { return &cuda_double::kernels; }
