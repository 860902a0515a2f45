#pragma once
/// \file
/// Numbers on a device whose type is known at run time: float32 or bfloat16.

#include <cstdint>

namespace tessera::kernels::cuda {

enum class Real : std::uint8_t { float32, bfloat16 };
constexpr std::int64_t bytes_of(Real type) { return type == Real::float32 ? 4 : 2; }

/// Contiguous numbers on the device that a kernel reads. Null: absent argument.
struct ConstReals {
  const void* data = nullptr;
  Real type = Real::float32;
};
/// The same for numbers that a kernel writes.
struct Reals {
  void* data = nullptr;
  Real type = Real::float32;
};

}  // namespace tessera::kernels::cuda
