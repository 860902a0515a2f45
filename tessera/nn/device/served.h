#pragma once
/// \file
/// Whether a fused function of nn/ has kernels for its tensors on their device.

#include <tessera/nn/device/kernels.h>
#include <tessera/nn/fused.h>

#include <initializer_list>

namespace tessera::nn {

/// Whether our kernels serve these tensors: those of kernels/cpu, or a device's.
inline bool served(std::initializer_list<at::Tensor> tensors) {
  return fusable(tensors) || device_kernels(tensors) != nullptr;
}

}  // namespace tessera::nn
