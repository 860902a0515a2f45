#pragma once
/// \file
/// The optimizers' kernels that a device's plug-in gives (comm/backend_plugin.h):
/// comm::plugin_table<DeviceKernels>("cuda").

#include <tessera/kernels/cpu/adamw.h>
#include <tessera/kernels/cuda/exact_squares.h>

#include <cstdint>
#include <span>

namespace tessera::optim {

struct DeviceKernels {
  static constexpr const char* symbol = "tessera_optimizer_kernels";
  static constexpr int current_abi = 2;
  int abi;
  /// kernels::adamw on device pointers, on the current stream.
  void (*adamw)(float* p, const float* g, float* m, float* v, std::int64_t n, const kernels::AdamwArgs& args);
  /// kernels::cuda::add_exact_squares on the current stream.
  void (*add_exact_squares)(std::span<const kernels::cuda::SquareRange> ranges, kernels::cuda::Real type,
                            std::int64_t* words);
};

}  // namespace tessera::optim
