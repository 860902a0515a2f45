#pragma once
/// \file
/// Numbers of either type in exactly sized memory, so that AddressSanitizer detects an access outside it, and the
/// thread orders that each kernel is run in.

#include <tessera/kernels/cuda/reals.h>
#include <tests/cuda_on_host/grid.h>
#include <tests/kernels/reference.h>

#include <bit>
#include <cstring>
#include <memory>
#include <vector>

namespace cuda_tests {

using reference::Doubles;
using reference::Floats;
using tessera::kernels::cuda::bytes_of;
using tessera::kernels::cuda::ConstReals;
using tessera::kernels::cuda::Real;
using tessera::kernels::cuda::Reals;
constexpr Real f = Real::float32, b = Real::bfloat16;  // short names for tables of cases

/// Calls run() in every order of threads.
template <class Run>
void in_each_order(const Run& run) {
  using cuda_on_host::Order;
  for (const Order order : {Order::forward, Order::backward, Order::shuffled}) {
    cuda_on_host::set_order(order, 7);
    run();
  }
  cuda_on_host::set_order(Order::forward);
}

inline float nearest(float x, Real type) {
  if (type == Real::float32) return x;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>((bits + 0x7fffU + (bits >> 16 & 1U)) & 0xffff0000U);
}

class Numbers {
 public:
  /// `shift`: offset from the memory's alignment in elements.
  Numbers(Real type, std::int64_t count, int shift = 0)
      : type_(type),
        count_(count),
        shift_(shift),
        bytes_(new char[static_cast<std::size_t>((count + shift) * bytes_of(type))]) {
    fill(Floats(static_cast<std::size_t>(count), std::numeric_limits<float>::quiet_NaN()));
  }
  Numbers(Real type, const Floats& values, int shift = 0)
      : Numbers(type, static_cast<std::int64_t>(values.size()), shift) {
    fill(values);
  }

  ConstReals read() const { return {at(0), type_}; }
  Reals write() { return {at(0), type_}; }
  operator ConstReals() const { return read(); }
  operator Reals() { return write(); }
  float* floats() { return reinterpret_cast<float*>(at(0)); }

  /// The values after rounding.
  Doubles values() const {
    Doubles out;
    for (std::int64_t i = 0; i < count_; ++i) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, at(i), static_cast<std::size_t>(bytes_of(type_)));
      out.push_back(std::bit_cast<float>(type_ == Real::float32 ? bits : bits << 16));
    }
    return out;
  }

 private:
  char* at(std::int64_t i) const { return bytes_.get() + (shift_ + i) * bytes_of(type_); }
  void fill(const Floats& values) {
    for (std::int64_t i = 0; i < count_; ++i) {
      const auto bits = std::bit_cast<std::uint32_t>(nearest(values[static_cast<std::size_t>(i)], type_));
      const std::uint32_t stored = type_ == Real::float32 ? bits : bits >> 16;
      std::memcpy(at(i), &stored, static_cast<std::size_t>(bytes_of(type_)));
    }
  }

  Real type_;
  std::int64_t count_;
  int shift_;
  std::unique_ptr<char[]> bytes_;
};

/// Allowed difference between exact results and those of this type; `error` applies to fp32.
inline double limit(Real type, double error) { return type == Real::float32 ? error : 4.1e-3; }

}  // namespace cuda_tests
