#pragma once
/// \file
/// Inside of crc32c.h: the ways to compute CRC-32C, each of which a processor may or may not have. Checksums here are
/// "raw": without the complement at begin and end, so that any of them continues what any other began.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera::format {

struct Crc32cKernels {
  const char* name;
  /// `raw` continued over `bytes`, any size and alignment.
  std::uint32_t (*update)(std::span<const std::byte> bytes, std::uint32_t raw);
  /// The same, and copies `from` to `to` (no overlap) in the same pass over memory.
  std::uint32_t (*copy)(std::byte* to, std::span<const std::byte> from, std::uint32_t raw);
};

/// Those that this processor can execute, the slowest first: "tables" (always), "instruction" (SSE 4.2 and PCLMUL, or
/// CRC32CX and PMULL of ARM), "folding" (AVX-512 and VPCLMULQDQ).
std::span<const Crc32cKernels> crc32c_kernels();

/// x^exponent modulo the Castagnoli polynomial, bit-reflected (bit 31 is x^0): what moves a raw checksum over exponent
/// zero bits when it is multiplied with it.
constexpr std::uint32_t crc32c_power(std::uint64_t exponent) {
  std::uint32_t power = 0x80000000;
  for (; exponent > 0; --exponent) power = (power >> 1) ^ ((power & 1) ? 0x82F63B78u : 0);
  return power;
}

/// Appends the ways of this architecture that this processor can execute, the slowest first: crc32c_x86.cpp or
/// crc32c_arm64.cpp.
void add_machine_kernels(std::vector<Crc32cKernels>& kernels);

}  // namespace tessera::format
