#pragma once
/// \file
/// Inside of crc32c_*.cpp: CRC-32C by an instruction that takes some cycles, but of which one can begin in each: three
/// streams side by side (Gopal et al., "Fast CRC Computation for iSCSI Polynomial Using CRC32 Instruction", Intel,
/// 2011). Machine has `one(at, size, raw)` and `three<Bytes>(at, raw)`, which takes 3 * Bytes bytes.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tessera::format {

template <class Machine>
std::uint32_t update_by_streams(std::span<const std::byte> bytes, std::uint32_t raw) {
  constexpr std::size_t large = 1024, small = 128;
  for (; bytes.size() >= 3 * large; bytes = bytes.subspan(3 * large))
    raw = Machine::template three<large>(bytes.data(), raw);
  for (; bytes.size() >= 3 * small; bytes = bytes.subspan(3 * small))
    raw = Machine::template three<small>(bytes.data(), raw);
  return Machine::one(bytes.data(), bytes.size(), raw);
}

template <class Machine>
std::uint32_t copy_by_streams(std::byte* to, std::span<const std::byte> from, std::uint32_t raw) {
  constexpr std::size_t block = 12 * 1024;  // in the first-level cache when the checksum reads it
  while (!from.empty()) {
    const auto part = from.first(std::min(from.size(), block));
    std::memcpy(to, part.data(), part.size());
    raw = update_by_streams<Machine>(part, raw);
    to += part.size();
    from = from.subspan(part.size());
  }
  return raw;
}

}  // namespace tessera::format
