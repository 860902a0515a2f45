#pragma once
/// \file
/// The optimizers' kernels from a device's plug-in (comm/backend_plugin.h): comm::plugin_table<DeviceKernels>("cuda").

#include <tessera/kernels/cuda/adamw.h>
#include <tessera/kernels/cuda/exact_squares.h>
#include <tessera/kernels/cuda/round_to_bf16.h>
#include <tessera/kernels/cuda/step_scalars.h>

#include <cstdint>
#include <span>

namespace tessera::optim {

/// Wrappers of the functions in kernels/cuda with the same names, on the current stream.
struct DeviceKernels {
  static constexpr const char* symbol = "tessera_optimizer_kernels";
  static constexpr int current_abi = 4;
  int abi;
  void (*adamw)(std::span<const kernels::cuda::AdamwRange> ranges, const kernels::cuda::StepScalars* scalars);
  void (*adamw_bf16)(std::span<const kernels::cuda::AdamwBf16Range> ranges, const kernels::cuda::StepScalars* scalars);
  void (*round_to_bf16)(const float* from, std::uint16_t* to, std::int64_t n, const kernels::Bf16Rounding& rounding,
                        int which);
  void (*add_exact_squares)(std::span<const kernels::cuda::SquareRange> ranges, kernels::cuda::Real type,
                            std::int64_t* words);
  void (*carry_words)(std::int64_t* words);
  void (*form_step_scalars)(const std::int64_t* words, double max_norm, kernels::cuda::StepScalars* scalars);
};

/// The plug-in's table. Throws InputError if there is no plug-in.
const DeviceKernels& device_kernels();

}  // namespace tessera::optim
