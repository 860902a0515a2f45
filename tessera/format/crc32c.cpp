#include <tessera/format/crc32c.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include <tessera/base/file.h>

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

std::uint32_t update_by_tables(std::span<const std::byte> bytes, std::uint32_t crc) {
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

#if defined(__x86_64__)  // the builtins below exist for this architecture only; the run-time check decides on each
                         // machine
__attribute__((target("sse4.2"))) std::uint32_t update_by_instruction(std::span<const std::byte> bytes,
                                                                      std::uint32_t crc) {
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  std::uint64_t wide = crc;
  for (; left >= 8; at += 8, left -= 8) wide = __builtin_ia32_crc32di(wide, load_little_endian(at));
  crc = static_cast<std::uint32_t>(wide);
  for (; left > 0; ++at, --left) crc = __builtin_ia32_crc32qi(crc, std::to_integer<unsigned char>(*at));
  return crc;
}
const bool kHasInstruction = __builtin_cpu_supports("sse4.2");
#else
std::uint32_t update_by_instruction(std::span<const std::byte> bytes, std::uint32_t crc) {
  return update_by_tables(bytes, crc);
}
const bool kHasInstruction = false;
#endif

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc) {
  return ~(kHasInstruction ? update_by_instruction(bytes, ~crc) : update_by_tables(bytes, ~crc));
}

std::uint32_t crc32c_portable(std::span<const std::byte> bytes, std::uint32_t crc) {
  return ~update_by_tables(bytes, ~crc);
}

void DigestBuilder::update(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::uint64_t filled = digest_.size % kDigestChunk;
    if (filled == 0) digest_.chunks.push_back(0);
    const auto part = bytes.first(std::min<std::uint64_t>(bytes.size(), kDigestChunk - filled));
    digest_.chunks.back() = crc32c(part, digest_.chunks.back());
    digest_.size += part.size();
    bytes = bytes.subspan(part.size());
  }
}

Digest DigestBuilder::finish() && { return std::move(digest_); }

Digest digest_of(std::span<const std::byte> bytes) {
  DigestBuilder builder;
  builder.update(bytes);
  return std::move(builder).finish();
}

Digest digest_of_file(const std::string& path) {
  const MappedFile file(path);
  return digest_of(file.bytes());
}

}  // namespace tessera::format
