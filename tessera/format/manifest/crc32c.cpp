#include <tessera/format/manifest/crc32c.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/format/manifest/crc32c_kernels.h>

namespace tessera::format {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // Castagnoli, bit-reflected

// table[k][b]: the checksum of byte b followed by k zero bytes ("slicing by 8", Kounavis and Berry 2005).
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

static_assert(std::endian::native == std::endian::little, "words are read in memory order");
std::uint64_t load_little_endian(const std::byte* from) {
  std::uint64_t word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

std::uint32_t update_by_tables(std::span<const std::byte> bytes, std::uint32_t crc) {  // crc: raw
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) {
    const std::uint64_t word = load_little_endian(at) ^ crc;
    crc = 0;
    for (int k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 0xFF];
  }
  for (; left > 0; ++at, --left) crc = (crc >> 8) ^ kTables[0][(crc ^ std::to_integer<std::uint32_t>(*at)) & 0xFF];
  return crc;
}

std::uint32_t copy_by_tables(std::byte* to, std::span<const std::byte> from, std::uint32_t raw) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
  return update_by_tables(from, raw);
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

// kZeroBytes[k]: what moves a checksum over 2^k zero bytes when it is multiplied with it: x^(8 * 2^k).
constexpr std::array<std::uint32_t, 64> kZeroBytes = [] {
  std::array<std::uint32_t, 64> powers{};
  powers[0] = crc32c_power(8);
  for (std::size_t k = 1; k < powers.size(); ++k) powers[k] = multiplied(powers[k - 1], powers[k - 1]);
  return powers;
}();

std::vector<Crc32cKernels> find_kernels() {
  std::vector<Crc32cKernels> found = {{"tables", update_by_tables, copy_by_tables}};
  add_machine_kernels(found);
  return found;
}

const Crc32cKernels& fastest() {
  static const Crc32cKernels kernels = crc32c_kernels().back();
  return kernels;
}

}  // namespace

std::span<const Crc32cKernels> crc32c_kernels() {
  static const std::vector<Crc32cKernels> kernels = find_kernels();
  return kernels;
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc) { return ~fastest().update(bytes, ~crc); }

std::uint32_t crc32c_portable(std::span<const std::byte> bytes, std::uint32_t crc) {
  return ~update_by_tables(bytes, ~crc);
}

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

void DigestBuilder::update(std::span<const std::byte> bytes) { chunk_by_chunk(bytes, fastest().update); }

void DigestBuilder::copy(std::byte* to, std::span<const std::byte> from) {
  chunk_by_chunk(from, [&to](std::span<const std::byte> part, std::uint32_t raw) {
    raw = fastest().copy(to, part, raw);
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
