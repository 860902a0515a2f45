#pragma once
/// \file
/// Arguments for the kernels of kernels/cuda on the host: memory of exactly the size, so that an access beside it is
/// AddressSanitizer's, at any distance from an aligned address, and every order of threads.

#include <tessera/kernels/cuda/reals.h>
#include <tests/cuda_on_host/grid.h>
#include <tests/kernels/reference.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>

namespace tessera::kernels::cuda {

/// Calls run() with threads forward, backward and shuffled.
template <class Run>
void in_every_order(Run run) {
  cuda_on_host::set_order(cuda_on_host::Order::forward);
  run();
  cuda_on_host::set_order(cuda_on_host::Order::backward);
  run();
  cuda_on_host::set_order(cuda_on_host::Order::shuffled, 7);
  run();
  cuda_on_host::set_order(cuda_on_host::Order::forward);
}

inline std::uint16_t narrow(float x) {  // to nearest, ties to even; no NaN
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}
inline float widen(std::uint16_t x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16); }

/// Numbers of a type in memory that begins `shift` elements behind an aligned address and ends with the last one.
class Numbers {
 public:
  Numbers(const reference::Floats& values, Real type, std::size_t shift = 0)
      : type_(type),
        count_(values.size()),
        memory_(new std::byte[bytes(values.size() + shift)]),
        begin_(memory_.get() + bytes(shift)) {
    for (std::size_t i = 0; i < count_; ++i) {
      if (type == Real::float32) {
        std::memcpy(begin_ + 4 * i, &values[i], 4);
      } else {
        const std::uint16_t narrowed = narrow(values[i]);
        std::memcpy(begin_ + 2 * i, &narrowed, 2);
      }
    }
  }

  ConstReals read() const { return {begin_, type_}; }
  Reals written() const { return {begin_, type_}; }
  reference::Floats values() const {
    reference::Floats all;
    for (std::size_t i = 0; i < count_; ++i) {
      if (type_ == Real::float32) {
        all.push_back(0);
        std::memcpy(&all.back(), begin_ + 4 * i, 4);
      } else {
        std::uint16_t narrowed = 0;
        std::memcpy(&narrowed, begin_ + 2 * i, 2);
        all.push_back(widen(narrowed));
      }
    }
    return all;
  }

 private:
  std::size_t bytes(std::size_t elements) const { return elements * (type_ == Real::float32 ? 4 : 2); }

  Real type_;
  std::size_t count_;
  std::unique_ptr<std::byte[]> memory_;
  std::byte* begin_;
};

}  // namespace tessera::kernels::cuda
