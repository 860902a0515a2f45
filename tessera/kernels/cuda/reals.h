#pragma once
/// \file
/// Arrays on a device whose element type is known only at run time: float32 or bfloat16.

#include <cstdint>

namespace tessera::kernels::cuda {

enum class Real : std::uint8_t { float32, bfloat16 };
constexpr std::int64_t bytes_of(Real type) { return type == Real::float32 ? 4 : 2; }

/// Contiguous elements on the device that a kernel reads. Null: the argument is absent.
struct ConstReals {
  const void* data = nullptr;
  Real type = Real::float32;
};
/// The same for elements that a kernel writes.
struct Reals {
  void* data = nullptr;
  Real type = Real::float32;
};

}  // namespace tessera::kernels::cuda
