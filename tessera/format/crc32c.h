#pragma once
/// \file
/// CRC-32C (Castagnoli polynomial, RFC 3720 appendix B.4), with the processor's instruction where there is one, and the digest
/// of a file: its size and one checksum per chunk, so that a damaged file can be told where it is damaged.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera::format {

/// CRC-32C of `bytes`, continuing from the checksum `crc` of what came before (0: nothing).
/// crc32c("123456789") == 0xE3069283.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc = 0);
/// The same by tables alone (what processors without the instruction use).
std::uint32_t crc32c_portable(std::span<const std::byte> bytes, std::uint32_t crc = 0);

/// Bytes covered by one checksum of a Digest.
inline constexpr std::uint64_t kDigestChunk = std::uint64_t{16} << 20;

/// What a file must look like: its size and the CRC-32C of each chunk of kDigestChunk bytes (the last may be shorter).
struct Digest {
  std::uint64_t size = 0;
  std::vector<std::uint32_t> chunks;
  bool operator==(const Digest&) const = default;
};

/// Builds a Digest from the bytes of a file as they are written.
class DigestBuilder {
 public:
  void update(std::span<const std::byte> bytes);
  Digest finish() &&;

 private:
  Digest digest_;
};

Digest digest_of(std::span<const std::byte> bytes);
/// Reads the file by mapping. Throws InputError when it is missing or unreadable.
Digest digest_of_file(const std::string& path);

}  // namespace tessera::format
