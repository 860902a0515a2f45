#pragma once
/// \file
/// Interface between libtessera.so and a device's plug-in library (libtessera_cuda.so): libtessera.so itself never
/// links a device's libraries. For each layer that needs one, the plug-in exports a C function that returns a table of
/// functions, valid as long as the library is loaded. A table is a struct with `symbol` (the C function's name),
/// `current_abi`, and, as its first member, `int abi`, the current_abi with which the plug-in was built. This header
/// defines comm's table.

#include <tessera/comm/backend.h>

#include <memory>
#include <string>

namespace tessera::comm {

struct BackendPlugin {
  static constexpr const char* symbol = "tessera_backend_plugin";
  static constexpr int current_abi = 4;
  int abi;
  int (*device_count)();  ///< usable devices of this process
  /// Equal for two ranks of a host that use the same physical device, whatever CUDA_VISIBLE_DEVICES is.
  std::string (*device_identity)(int index);
  std::shared_ptr<Backend> (*make_backend)(const BackendRequest&);
};

/// Loads the plug-in of a device ("cuda") once: libtessera_cuda.so from this library's folder or the loader's path.
/// Throws InputError with build instructions if it is missing or from a different build.
const void* plugin_table(const std::string& device, const char* symbol, int abi);
template <class Table>
const Table& plugin_table(const std::string& device) {
  return *static_cast<const Table*>(plugin_table(device, Table::symbol, Table::current_abi));
}
inline const BackendPlugin& backend_plugin(const std::string& device) { return plugin_table<BackendPlugin>(device); }

/// Loads the device's plug-in before LibTorch looks for the device, which it does only once, at the first use of
/// autograd. Throws InputError if the plug-in is missing and `device` is cuda; ignores that for automatic.
void load_device(Device device);

/// Resolves Device::automatic: cuda if the plug-in can be loaded and finds a device; otherwise cpu, with the reason in
/// `why`.
Device found_device(std::string& why);

/// Returns the process's device: the CPU, or the GPU for this local rank (round robin), and makes it current on the
/// calling thread. Call before the process's first backward pass. Throws InputError without a GPU.
c10::Device open_device(Device device, int local_rank);

}  // namespace tessera::comm
