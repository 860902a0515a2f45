// The entry of libtessera_cuda.so: NCCL groups and CUDA kernels for libtessera.so, which never links CUDA
// (backend_plugin.h).
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <tessera/base/error.h>
#include <tessera/comm/backend_plugin.h>
#include <tessera/comm/c10d_backend.h>
#include <tessera/kernels/cuda/adamw.h>

#include <cstdlib>

namespace tessera::comm {
namespace {

int device_count() { return c10::cuda::device_count(); }

std::string device_identity(int index) {
  char bus[64] = {};
  const cudaError_t status = cudaDeviceGetPCIBusId(bus, sizeof bus, index);
  if (status != cudaSuccess) {
    throw Error(concat("CUDA device ", index, " does not tell its PCI bus: ", cudaGetErrorString(status)));
  }
  return bus;
}

/// ProcessGroupNCCL orders its work with events on the current stream and bounds it by its watchdog; the communicator
/// is made by the first collective. bf16/fp16 sums are NCCL's own (fp32 inside its reduction kernels), so they travel
/// as they are.
std::shared_ptr<Backend> make_backend(const BackendRequest& request) {
  if (request.backend != "nccl") {
    throw InputError(concat("the CUDA plug-in has no backend '", request.backend, "' (known: nccl)."));
  }
  // The tensors of a collective are kept alive by its Pending and by LibTorch's work until the caller's stream is
  // behind it. recordStream would instead delay the reuse of their memory by as much as the host runs ahead.
  setenv("TORCH_NCCL_AVOID_RECORD_STREAMS", "1", /*overwrite=*/0);
  // A failed or late collective throws in wait(); ending the process is the agent's business.
  setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2", /*overwrite=*/0);
  c10::cuda::set_device(request.device.index());
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = request.timeout;
  auto group = c10::make_intrusive<c10d::ProcessGroupNCCL>(request.store, request.rank, request.size, options);
  group->setBoundDeviceId(request.device);
  return make_c10d_backend(group, {.name = request.name,
                                   .kind = "nccl",
                                   .device = request.device,
                                   .reduce_half_as_float = false,
                                   .owner = nullptr});
}

void adamw(float* p, const float* g, float* m, float* v, std::int64_t n, const kernels::AdamwArgs& args) {
  kernels::cuda::adamw(p, g, m, v, n, args, c10::cuda::getCurrentCUDAStream().stream());
}

constexpr BackendPlugin plugin = {BackendPlugin::current_abi, "cuda",        &device_count,
                                  &device_identity,           &make_backend, &adamw};

}  // namespace
}  // namespace tessera::comm

extern "C" const tessera::comm::BackendPlugin* tessera_backend_plugin() { return &tessera::comm::plugin; }
