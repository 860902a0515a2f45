#pragma once
/// \file
/// How a device's plug-in library (libtessera_cuda.so) gives functions to libtessera.so, which never links a device's
/// libraries. For each layer that asks, the plug-in exports one C function that returns a table of functions, which
/// lives as long as the library. A table is a struct with `symbol`, the C function's name, `current_abi`, and, as its
/// first member, `int abi`: the current_abi of the plug-in's build. This header: comm's table.

#include <tessera/comm/backend.h>

#include <memory>
#include <string>

namespace tessera::comm {

struct BackendPlugin {
  static constexpr const char* symbol = "tessera_backend_plugin";
  static constexpr int current_abi = 4;
  int abi;
  int (*device_count)();  ///< usable devices of this process
  /// Equal for two ranks of a host that use one physical device, whatever CUDA_VISIBLE_DEVICES says.
  std::string (*device_identity)(int index);
  std::shared_ptr<Backend> (*make_backend)(const BackendRequest&);
};

/// Loads the plug-in of a device ("cuda") once: libtessera_cuda.so beside this library or on the loader's path. Throws
/// InputError saying how to build it when there is none, or when it is of another build.
const void* plugin_table(const std::string& device, const char* symbol, int abi);
template <class Table>
const Table& plugin_table(const std::string& device) {
  return *static_cast<const Table*>(plugin_table(device, Table::symbol, Table::current_abi));
}
inline const BackendPlugin& backend_plugin(const std::string& device) { return plugin_table<BackendPlugin>(device); }

/// Loads what the device needs, so that LibTorch finds it when it asks, once, at the first use of autograd. Throws
/// InputError where cuda's plug-in is missing; for automatic that is no error.
void load_device(Device device);

/// What Device::automatic means here: cuda if the plug-in is there and sees a device; else cpu, and `why`.
Device found_device(std::string& why);

/// The device of a process: the CPU, or the GPU of this local rank (they are taken in turn), which becomes the calling
/// thread's current one. Must come before the first backward pass of the process. Throws InputError without a GPU.
c10::Device open_device(Device device, int local_rank);

}  // namespace tessera::comm
