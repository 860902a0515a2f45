// NCCL groups and device queries, exported by libtessera_cuda.so to libtessera.so, which never links CUDA
// (backend_plugin.h).
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>

#include <tessera/base/error.h>
#include <tessera/comm/backend_plugin.h>
#include <tessera/comm/c10d/c10d_backend.h>

#include <cstdlib>

namespace tessera::comm {
namespace {

int device_count() { return c10::cuda::device_count(); }

std::string device_identity(int index) {
  char bus[64] = {};
  const cudaError_t status = cudaDeviceGetPCIBusId(bus, sizeof bus, index);
  if (status != cudaSuccess) {
    throw Error(concat("CUDA device ", index, ": cannot read its PCI bus id: ", cudaGetErrorString(status)));
  }
  return bus;
}

/// ProcessGroupNCCL orders its work with events on the current stream and bounds it with its watchdog; the first
/// collective creates the communicator. bf16/fp16 are sent as they are: NCCL's reduction kernels sum them in fp32.
std::shared_ptr<Backend> make_backend(const BackendRequest& request) {
  // The Pending and LibTorch's work keep a collective's tensors alive until the caller's stream has passed it.
  // recordStream would instead delay the reuse of their memory by as much as the host runs ahead.
  setenv("TORCH_NCCL_AVOID_RECORD_STREAMS", "1", /*overwrite=*/0);
  // A failed or late collective throws in wait(); the agent, not NCCL, ends the process.
  setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2", /*overwrite=*/0);
  c10::cuda::set_device(request.device.index());
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = request.timeout;
  auto group = c10::make_intrusive<c10d::ProcessGroupNCCL>(request.store, request.rank, request.size, options);
  group->setBoundDeviceId(request.device);
  return make_c10d_backend(
      group,
      {.name = request.name, .kind = std::string(layout::Nccl::row.name), .device = request.device, .owner = nullptr});
}

constexpr BackendPlugin plugin = {BackendPlugin::current_abi, &device_count, &device_identity, &make_backend};

}  // namespace
}  // namespace tessera::comm

extern "C" const void* tessera_backend_plugin() { return &tessera::comm::plugin; }
