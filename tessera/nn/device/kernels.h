#pragma once
/// \file
/// The kernels of nn/ that a device's plug-in gives (comm/backend_plugin.h). The autograd functions of nn/ serve both
/// devices: where device_kernels() answers, they call its table instead of kernels/cpu.

#include <ATen/core/Tensor.h>
#include <tessera/kernels/cuda/reals.h>

#include <initializer_list>

namespace tessera::nn {

/// Functions on device pointers, each on the current stream of the current device; they return before the work is done.
struct DeviceKernels {
  static constexpr const char* symbol = "tessera_nn_kernels";
  static constexpr int current_abi = 1;
  int abi;
};

/// The table that serves these tensors: every defined one is dense float32 or bfloat16, all on one CUDA device. Else null.
/// The kernels also want rows contiguous; callers see to that.
const DeviceKernels* device_kernels(std::initializer_list<at::Tensor> tensors);

/// A contiguous tensor as a kernel's argument; undefined: null.
kernels::cuda::ConstReals const_reals(const at::Tensor& tensor);
kernels::cuda::Reals reals(const at::Tensor& tensor);

}  // namespace tessera::nn
