#pragma once
/// \file
/// How a device's plug-in library (libtessera_cuda.so) gives backends and kernels to libtessera.so, which never links a
/// device's libraries. The plug-in exports one C function, `tessera_backend_plugin`, that returns a table which lives
/// as long as the library.

#include <tessera/comm/backend.h>
#include <tessera/kernels/cpu/adamw.h>

#include <chrono>
#include <memory>
#include <string>

namespace c10d {
class Store;
}

namespace tessera::comm {

struct BackendRequest {
  std::string backend;  ///< "nccl"
  std::string name;     ///< of the group
  int rank = 0, size = 1;
  c10::Device device = c10::kCPU;         ///< with index
  c10::intrusive_ptr<c10d::Store> store;  ///< keys are unique to this group
  std::chrono::milliseconds connect_timeout{};
  std::chrono::milliseconds timeout{};
};

struct BackendPlugin {
  static constexpr int current_abi = 3;
  int abi;                ///< current_abi of the plug-in's build
  const char* device;     ///< "cuda"
  int (*device_count)();  ///< usable devices of this process
  /// Equal for two ranks of a host that use one physical device, whatever CUDA_VISIBLE_DEVICES says.
  std::string (*device_identity)(int index);
  std::shared_ptr<Backend> (*make_backend)(const BackendRequest&);  ///< throws InputError for an unknown backend
  /// kernels::adamw on device pointers, on the current stream.
  void (*adamw)(float* p, const float* g, float* m, float* v, std::int64_t n, const kernels::AdamwArgs& args);
};

/// Loads the plug-in of a device ("cuda") once: libtessera_cuda.so beside this library or on the loader's path. Throws
/// InputError saying how to build it when there is none, or when it is of another build.
const BackendPlugin& backend_plugin(const std::string& device);

}  // namespace tessera::comm

/// What a plug-in defines:
/// extern "C" const tessera::comm::BackendPlugin* tessera_backend_plugin();
