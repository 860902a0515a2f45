#pragma once
/// \file
/// Numbers on a device whose type is known at run time: float32 or bfloat16.

#include <cstdint>

namespace tessera::kernels::cuda {

enum class Real : std::uint8_t { float32, bfloat16 };
constexpr std::int64_t bytes_of(Real type) { return type == Real::float32 ? 4 : 2; }

/// Contiguous numbers that a kernel reads, on the device. Null: an argument that is absent.
struct ConstReals {
  const void* data = nullptr;
  Real type = Real::float32;
};
/// The same, written.
struct Reals {
  void* data = nullptr;
  Real type = Real::float32;
};

}  // namespace tessera::kernels::cuda
