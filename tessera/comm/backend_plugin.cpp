#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <tessera/base/error.h>
#include <tessera/base/system/plugin.h>
#include <tessera/comm/backend_plugin.h>

namespace tessera::comm {

const void* plugin_table(const std::string& device, const char* symbol, int abi) {
  const std::string library = concat("libtessera_", device, ".so");
  using Entry = const void* (*)();
  // Loaded with global symbols, as LibTorch's registries require. Never closed, because tensors may outlive every
  // group.
  const auto entry = [&] {
    try {
      return reinterpret_cast<Entry>(load_entry(library, symbol, Symbols::shared));
    } catch (const Error& error) {
      throw InputError(
          concat("the ", device == "cuda" ? "CUDA" : device,
                 " plug-in is not built, or a library that it needs is not installed: ", error.what(), ". ",
                 device == "cuda" ? "Build with TESSERA_CUDA=ON on a machine with nvcc 13 and nccl.h, or stay"
                                  : "Install all of Tessera, or stay",
                 " on the CPU (--device cpu)."));
    }
  }();
  const void* table = entry();
  const int found = table == nullptr ? -1 : *static_cast<const int*>(table);
  if (found != abi) {
    throw InputError(concat(library, " is from a different build of Tessera (interface ", found, " of ", symbol,
                            ", expected ", abi, "); rebuild both together."));
  }
  return table;
}

Device found_device(std::string& why) {
  why = "this process sees no CUDA device";
  try {
    if (backend_plugin("cuda").device_count() > 0) return Device::cuda;
  } catch (const InputError& error) {
    why = error.what();
  }
  return Device::cpu;
}

void load_device(Device device) {
  std::string why;
  if (device == Device::automatic) found_device(why);
  if (device == Device::cuda) backend_plugin("cuda");
}

c10::Device open_device(Device device, int local_rank) {
  if (device == Device::cpu) return c10::Device(c10::kCPU);
  const int count = backend_plugin("cuda").device_count();
  if (count == 0)
    throw InputError("the device is cuda, but this process sees no CUDA device; check CUDA_VISIBLE_DEVICES.");
  // LibTorch checks for CUDA once (in a backward pass) and caches the answer.
  if (!at::detail::getCUDAHooks().hasCUDA()) {
    throw InputError(
        "the device is cuda, but LibTorch has decided that this process has no CUDA: tensors were used with autograd "
        "before the CUDA plug-in was loaded. Call tessera::init() first.");
  }
  const c10::Device chosen(c10::kCUDA, static_cast<c10::DeviceIndex>(local_rank % count));
  // Allocations and kernels without an explicit device use the current one.
  c10::impl::getDeviceGuardImpl(c10::kCUDA)->setDevice(chosen);
  return chosen;
}

}  // namespace tessera::comm
