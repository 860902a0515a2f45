#include <tessera/kernels/cpu/copy_finite.h>

#include <cstring>

namespace tessera::kernels {

bool copy_finite(float* __restrict to, const float* __restrict from, std::int64_t n) {
  // An exponent of all ones carries into the sign bit when one is added to it. This is a plain loop over bits, which
  // the compiler vectorizes and which is memory-bound.
  std::uint32_t carried = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, from + i, sizeof bits);
    carried |= (bits & 0x7fffffffu) + 0x00800000u;
    std::memcpy(to + i, &bits, sizeof bits);
  }
  return (carried & 0x80000000u) == 0;
}

}  // namespace tessera::kernels
