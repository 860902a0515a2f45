// The tables of libtessera_cuda.so on the double.
//
// Environment: DOUBLE_ONE_GPU: all devices say that they are one GPU, so that ranks share it.
#include <tessera/comm/backend_plugin.h>
#include <tessera/comm/c10d/c10d_backend.h>
#include <tessera/kernels/cpu/adamw.h>
#include <tessera/layout/backends.h>
#include <tessera/optim/device_kernels.h>

#include <tests/double/memory.h>
#include <tests/double/nccl.h>
#include <tests/double/order.h>

#include <cstdlib>
#include <stdexcept>

namespace cuda_double {
namespace {

using tessera::comm::BackendPlugin;
using tessera::comm::BackendRequest;
using tessera::optim::DeviceKernels;

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

/// The CPU's kernel on the mirrors, launched on the current stream of the current device.
void adamw(float* p, const float* g, float* m, float* v, std::int64_t n, const tessera::kernels::AdamwArgs& args) {
  const int device = current_device();
  for (const void* pointer : {static_cast<const void*>(p), static_cast<const void*>(g), static_cast<const void*>(m),
                              static_cast<const void*>(v)}) {
    if (!is_device(pointer)) {
      add_finding(Kind::mixed_devices, "the AdamW kernel gets a host pointer");
      throw std::runtime_error("CUDA error: an illegal memory access was encountered");
    }
    if (device_of(pointer) != device) {
      add_finding(Kind::wrong_device, "the AdamW kernel is launched on cuda:" + std::to_string(device) +
                                          " for memory of cuda:" + std::to_string(device_of(pointer)));
    }
  }
  const auto bytes = static_cast<std::size_t>(n) * sizeof(float);
  enqueue("adamw", device, current_stream(device),
          {{p, bytes, false},
           {g, bytes, false},
           {m, bytes, false},
           {v, bytes, false},
           {p, bytes, true},
           {m, bytes, true},
           {v, bytes, true}});
  count_operation("adamw");
  tessera::kernels::adamw(static_cast<float*>(mirror(p)), static_cast<const float*>(mirror(g)),
                          static_cast<float*>(mirror(m)), static_cast<float*>(mirror(v)), n, args);
}

constexpr BackendPlugin backend = {BackendPlugin::current_abi, &device_count, &device_identity, &make_backend};
constexpr DeviceKernels kernels = {DeviceKernels::current_abi, &adamw};

}  // namespace
}  // namespace cuda_double

extern "C" const void* tessera_backend_plugin() { return &cuda_double::backend; }
extern "C" const void* tessera_optimizer_kernels() { return &cuda_double::kernels; }
