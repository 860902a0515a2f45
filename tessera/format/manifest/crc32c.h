#pragma once
/// \file
/// CRC-32C (Castagnoli polynomial, RFC 3720 appendix B.4), by Intel's ISA-L, and the digest of a file: its size and one
/// checksum per chunk, which locate damage within the file.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera::format {

/// CRC-32C of `bytes`, continuing from the checksum `crc` of the preceding bytes (0: none). For example,
/// crc32c("123456789") == 0xE3069283.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc = 0);
/// The checksum of two consecutive byte ranges, computed from their checksums and the length of the second (like zlib's
/// crc32_combine), so that a file can be verified no matter how its parts were read. Takes about a microsecond.
std::uint32_t crc32c_joined(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes);

/// Default number of bytes per checksum of a Digest: the granularity at which damage is located.
inline constexpr std::uint64_t kDigestChunk = std::uint64_t{4} << 20;
/// Whether this is a valid chunk size for a Digest: a power of two from 64 KiB to 1 GiB.
bool is_digest_chunk(std::uint64_t bytes);

/// The expected contents of a file: its size and the CRC-32C of each chunk of `chunk_bytes` bytes (the last may be
/// shorter).
struct Digest {
  std::uint64_t size = 0;                    ///< bytes of the file
  std::vector<std::uint32_t> chunks;         ///< in file order
  std::uint64_t chunk_bytes = kDigestChunk;  ///< a size that is_digest_chunk() accepts
  bool operator==(const Digest&) const = default;
};

/// Builds a Digest from the bytes of a file as they are written. Not thread-safe.
class DigestBuilder {
 public:
  /// Throws Error unless is_digest_chunk(chunk_bytes).
  explicit DigestBuilder(std::uint64_t chunk_bytes = kDigestChunk);
  void update(std::span<const std::byte> bytes);  ///< appends the file's next bytes
  /// Copies `from` to `to` (from.size() bytes, any alignment, no overlap) and appends it to the digest, reading memory
  /// once. The checksum is computed from `from`, so a byte corrupted in `to` will not match it.
  void copy(std::byte* to, std::span<const std::byte> from);
  Digest finish() &&;  ///< to be called when all bytes have been added; invalidates the builder

 private:
  template <class Take>
  void chunk_by_chunk(std::span<const std::byte> bytes, const Take& take);

  Digest digest_;
};

/// The digest of bytes in memory. Throws like DigestBuilder.
Digest digest_of(std::span<const std::byte> bytes, std::uint64_t chunk_bytes = kDigestChunk);
/// Maps the file to read it. Throws InputError when it is missing or unreadable.
Digest digest_of_file(const std::string& path, std::uint64_t chunk_bytes = kDigestChunk);

}  // namespace tessera::format
