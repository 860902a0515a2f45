#pragma once
/// \file
/// The kernels of nn/ that a device's plug-in provides (comm/backend_plugin.h). The autograd functions of nn/ serve
/// both devices: if device_kernels() returns a table, they call it instead of kernels/cpu.

#include <ATen/core/Tensor.h>
#include <tessera/kernels/cuda/dropout.h>
#include <tessera/kernels/cuda/embed.h>
#include <tessera/kernels/cuda/fp8.h>
#include <tessera/kernels/cuda/gelu.h>
#include <tessera/kernels/cuda/group_products.h>
#include <tessera/kernels/cuda/join_columns.h>
#include <tessera/kernels/cuda/norm.h>
#include <tessera/kernels/cuda/reals.h>
#include <tessera/kernels/cuda/residual.h>
#include <tessera/kernels/cuda/rotary.h>
#include <tessera/kernels/cuda/scale.h>
#include <tessera/kernels/cuda/slots.h>
#include <tessera/kernels/cuda/softmax_cross_entropy.h>
#include <tessera/kernels/cuda/swiglu.h>

#include <initializer_list>

namespace tessera::nn {

/// Functions on device pointers, each on the current stream of the current device; they return before the work is done.
struct DeviceKernels {
  static constexpr const char* symbol = "tessera_nn_kernels";
  static constexpr int current_abi = 3;
  int abi;

  // Random numbers by position (kernels/cuda/dropout.h).
  void (*dropout)(kernels::cuda::ConstReals x, kernels::cuda::Reals y, kernels::cuda::RandomLines lines,
                  std::uint32_t limit, float scale);
  void (*uniform)(float* y, kernels::cuda::RandomLines lines);

  // The head's loss (kernels/cuda/softmax_cross_entropy.h).
  void (*softmax_cross_entropy)(kernels::cuda::Reals logits, const std::int64_t* targets, double* losses,
                                std::int64_t rows, std::int64_t columns, kernels::cuda::CrossEntropyArgs args);

  // A factor that is usually 1 (kernels/cuda/scale.h).
  void (*multiply_unless_one)(kernels::cuda::Reals x, const float* factor, std::int64_t n);

  // Operations on rows: embed.h, norm.h, residual.h, gelu.h, swiglu.h, rotary.h, join_columns.h of kernels/cuda.
  void (*embedded_sum)(const kernels::cuda::EmbeddedSum& a, std::int64_t rows, std::int64_t columns);
  void (*norm)(const kernels::cuda::NormForward& a, std::int64_t rows, std::int64_t columns);
  void (*norm_backward)(const kernels::cuda::NormBackward& a, std::int64_t rows, std::int64_t columns);
  std::int64_t (*norm_partial_sums)(bool has_mean, std::int64_t rows, std::int64_t columns);
  void (*add_residual)(const kernels::cuda::Residual& a, std::int64_t rows, std::int64_t columns);
  void (*add_residual_backward)(const kernels::cuda::ResidualBackward& a, std::int64_t rows, std::int64_t columns);
  std::int64_t (*residual_partial_sums)(std::int64_t rows, std::int64_t columns);
  void (*gelu_tanh)(kernels::cuda::ConstReals x, kernels::cuda::ConstReals bias, kernels::cuda::Reals y,
                    std::int64_t rows, std::int64_t columns);
  void (*gelu_tanh_backward)(const kernels::cuda::GeluBackward& a, std::int64_t rows, std::int64_t columns);
  std::int64_t (*gelu_partial_sums)(std::int64_t rows, std::int64_t columns);
  void (*swiglu)(kernels::cuda::ConstReals gate, kernels::cuda::ConstReals up, kernels::cuda::Reals y, std::int64_t n);
  void (*swiglu_backward)(const kernels::cuda::SwigluBackward& a, std::int64_t n);
  void (*rotary)(const kernels::cuda::Rotary& a, std::int64_t tokens, std::int64_t heads, std::int64_t size);
  void (*join_columns)(const kernels::cuda::ColumnJoin& a, std::int64_t rows, std::int64_t columns);
  std::int64_t (*joined_partial_sums)(int parts, std::int64_t rows, std::int64_t columns);

  // Mixture of experts (kernels/cuda/slots.h, group_products.h).
  void (*sort_slots)(const kernels::cuda::SlotOrder& a, std::int64_t slots, std::int64_t experts);
  bool (*groups_products)();  ///< whether at::_grouped_mm has a non-blocking kernel for the current device
  void (*group_rows)(const kernels::cuda::GroupRows& a, std::int64_t rows, std::int64_t inner, std::int64_t columns,
                     std::int64_t groups);
  void (*group_sums)(const kernels::cuda::GroupSums& a, std::int64_t rows, std::int64_t lines, std::int64_t columns,
                     std::int64_t groups);

  // Eight bits (kernels/cuda/fp8.h).
  void (*fp8_largest)(kernels::cuda::ConstReals x, const float* chosen, float* parts, std::int64_t n);
  void (*fp8_cast)(const kernels::cuda::Fp8Cast& a, std::int64_t rows, std::int64_t columns);
};

/// The table for these tensors, if every defined one is dense float32 or bfloat16 and all are on one CUDA device;
/// without tensors, the CUDA table. Otherwise null. The kernels also require contiguous rows; callers ensure that.
const DeviceKernels* device_kernels(std::initializer_list<at::Tensor> tensors);

/// A contiguous tensor as a kernel's argument; null if undefined.
kernels::cuda::ConstReals const_reals(const at::Tensor& tensor);
kernels::cuda::Reals reals(const at::Tensor& tensor);

}  // namespace tessera::nn
