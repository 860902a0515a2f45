// CRC-32C with the instructions of 64-bit ARM processors: CRC32CX and PMULL, which are in every server since 2015, but
// optional in the architecture. The polynomials are those of crc32c_x86.cpp: the instructions mean the same.

#include <arm_acle.h>
#include <arm_neon.h>
#include <sys/auxv.h>

#include <tessera/format/manifest/crc32c_kernels.h>
#include <tessera/format/manifest/crc32c_streams.h>

namespace tessera::format {
namespace {

std::uint64_t load_word(const std::byte* from) {
  std::uint64_t word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

// a * b without carries; the product of two words of 32 bits is one of 64.
[[gnu::target("+crypto")]] std::uint64_t carryless_product(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::uint64_t>(vmull_p64(a, b));
}

struct Instruction {
  [[gnu::target("+crc")]] static std::uint32_t one(const std::byte* at, std::size_t size, std::uint32_t raw) {
    for (; size >= 8; at += 8, size -= 8) raw = __crc32cd(raw, load_word(at));
    for (; size > 0; ++at, --size) raw = __crc32cb(raw, std::to_integer<std::uint8_t>(*at));
    return raw;
  }
  // The first two streams are moved over what follows them: crc32(0, w) is W(x) x^32 modulo the polynomial, which
  // reduces the products.
  template <std::size_t Bytes>
  [[gnu::target("+crc+crypto")]] static std::uint32_t three(const std::byte* at, std::uint32_t raw) {
    constexpr std::uint32_t over_two = crc32c_power(16 * Bytes - 33), over_one = crc32c_power(8 * Bytes - 33);
    std::uint32_t first = raw, second = 0, third = 0;
    for (std::size_t i = 0; i < Bytes; i += 8) {
      first = __crc32cd(first, load_word(at + i));
      second = __crc32cd(second, load_word(at + Bytes + i));
      third = __crc32cd(third, load_word(at + 2 * Bytes + i));
    }
    const std::uint64_t moved = carryless_product(first, over_two) ^ carryless_product(second, over_one);
    return third ^ __crc32cd(0, moved);
  }
};

}  // namespace

void add_machine_kernels(std::vector<Crc32cKernels>& kernels) {
  constexpr unsigned long pmull = 1ul << 4, crc32 = 1ul << 7;  // HWCAP_PMULL, HWCAP_CRC32
  if ((getauxval(AT_HWCAP) & (pmull | crc32)) == (pmull | crc32))
    kernels.push_back({"instruction", update_by_streams<Instruction>, copy_by_streams<Instruction>});
}

}  // namespace tessera::format
