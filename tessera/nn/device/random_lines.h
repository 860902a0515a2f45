#pragma once
/// \file
/// Positions of random numbers (nn/dropout.h) in the form that device kernels need.

#include <ATen/core/Tensor.h>

#include <tessera/kernels/cuda/dropout.h>
#include <tessera/nn/dropout.h>

#include <cstdint>
#include <span>

namespace tessera::nn {

/// The argument of a kernel of kernels/cuda/dropout.h, with the memory that it points to. Keep it until the kernel has
/// been launched, on the same stream.
struct DeviceLines {
  kernels::cuda::RandomLines lines;
  at::Tensor positions, column_positions;  // int64 on the device; undefined: consecutive
};

/// Lines [rows, tokens, columns] of `place`, or with heads > 0 [rows, heads, tokens, columns]. `column_positions`: the
/// number of each column; empty: consecutive. The host does not wait.
DeviceLines device_lines(const RandomPlace& place, std::int64_t rows, std::int64_t heads, std::int64_t tokens,
                         std::int64_t columns, std::span<const std::int64_t> column_positions, c10::Device device);

}  // namespace tessera::nn
