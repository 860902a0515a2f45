#include <tessera/format/manifest/crc32c.h>

#include <isa-l/crc.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/file.h>

namespace tessera::format {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // Castagnoli, bit-reflected

/// Continues a "raw" checksum, i.e. one without the complement at start and end.
std::uint32_t update(std::span<const std::byte> bytes, std::uint32_t raw) {
  constexpr std::size_t most = std::size_t{1} << 30;  // ISA-L counts bytes in an int
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), most));
    // ISA-L only reads the bytes, although its parameter is not const.
    raw = crc32_iscsi(reinterpret_cast<unsigned char*>(const_cast<std::byte*>(part.data())),
                      static_cast<int>(part.size()), raw);
    bytes = bytes.subspan(part.size());
  }
  return raw;
}

std::uint32_t update_and_copy(std::byte* to, std::span<const std::byte> from, std::uint32_t raw) {
  // small enough to be still in the first-level cache when the checksum reads it
  constexpr std::size_t block = 12 * 1024;
  while (!from.empty()) {
    const auto part = from.first(std::min(from.size(), block));
    std::memcpy(to, part.data(), part.size());
    raw = update(part, raw);
    to += part.size();
    from = from.subspan(part.size());
  }
  return raw;
}

/// a * b modulo the polynomial; bit 31 is x^0.
constexpr std::uint32_t multiplied(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (std::uint32_t bit = 0x80000000; bit != 0; bit >>= 1) {
    if (a & bit) product ^= b;
    b = (b >> 1) ^ ((b & 1) ? kPolynomial : 0);
  }
  return product;
}

// kZeroBytes[k] = x^(8 * 2^k): multiplying a checksum by it appends 2^k zero bytes.
constexpr std::array<std::uint32_t, 64> kZeroBytes = [] {
  std::array<std::uint32_t, 64> powers{};
  powers[0] = 0x80000000 >> 8;  // x^8
  for (std::size_t k = 1; k < powers.size(); ++k) powers[k] = multiplied(powers[k - 1], powers[k - 1]);
  return powers;
}();

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc) { return ~update(bytes, ~crc); }

std::uint32_t crc32c_joined(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes) {
  for (std::size_t k = 0; second_bytes >> k != 0 && k < kZeroBytes.size(); ++k)
    if (second_bytes >> k & 1) first = multiplied(kZeroBytes[k], first);
  return first ^ second;  // the complements at both ends cancel out
}

bool is_digest_chunk(std::uint64_t bytes) {
  return bytes >= std::uint64_t{64} << 10 && bytes <= std::uint64_t{1} << 30 && std::has_single_bit(bytes);
}

DigestBuilder::DigestBuilder(std::uint64_t chunk_bytes) {
  TESSERA_CHECK(is_digest_chunk(chunk_bytes), "a checksum per ", chunk_bytes,
                " bytes; a power of two from 64 KiB to 1 GiB is needed");
  digest_.chunk_bytes = chunk_bytes;
}

template <class Take>
void DigestBuilder::chunk_by_chunk(std::span<const std::byte> bytes, const Take& take) {
  while (!bytes.empty()) {
    const std::uint64_t filled = digest_.size % digest_.chunk_bytes;
    if (filled == 0) digest_.chunks.push_back(0);
    const auto part = bytes.first(std::min<std::uint64_t>(bytes.size(), digest_.chunk_bytes - filled));
    digest_.chunks.back() = ~take(part, ~digest_.chunks.back());
    digest_.size += part.size();
    bytes = bytes.subspan(part.size());
  }
}

void DigestBuilder::update(std::span<const std::byte> bytes) { chunk_by_chunk(bytes, ::tessera::format::update); }

void DigestBuilder::copy(std::byte* to, std::span<const std::byte> from) {
  chunk_by_chunk(from, [&to](std::span<const std::byte> part, std::uint32_t raw) {
    raw = update_and_copy(to, part, raw);
    to += part.size();
    return raw;
  });
}

Digest DigestBuilder::finish() && { return std::move(digest_); }

Digest digest_of(std::span<const std::byte> bytes, std::uint64_t chunk_bytes) {
  DigestBuilder builder(chunk_bytes);
  builder.update(bytes);
  return std::move(builder).finish();
}

Digest digest_of_file(const std::string& path, std::uint64_t chunk_bytes) {
  const MappedFile file(path);
  return digest_of(file.bytes(), chunk_bytes);
}

}  // namespace tessera::format
