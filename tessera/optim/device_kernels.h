#pragma once
/// \file
/// The optimizers' kernels that a device's plug-in gives (comm/backend_plugin.h):
/// comm::plugin_table<DeviceKernels>("cuda").

#include <tessera/kernels/cpu/adamw.h>

#include <cstdint>

namespace tessera::optim {

struct DeviceKernels {
  static constexpr const char* symbol = "tessera_optimizer_kernels";
  static constexpr int current_abi = 1;
  int abi;
  /// kernels::adamw on device pointers, on the current stream.
  void (*adamw)(float* p, const float* g, float* m, float* v, std::int64_t n, const kernels::AdamwArgs& args);
};

}  // namespace tessera::optim
