#pragma once
/// \file
/// CRC-32C (Castagnoli polynomial, RFC 3720 appendix B.4), by Intel's ISA-L, and the digest of a file: its size and one
/// checksum per chunk, so that a damaged file can be told where it is damaged.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera::format {

/// CRC-32C of `bytes`, continuing from the checksum `crc` of what came before (0: nothing).
/// crc32c("123456789") == 0xE3069283.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc = 0);
/// The checksum of two runs of bytes, one after the other, from that of each and the length of the second (as zlib's
/// crc32_combine): whoever reads which part, the whole can be compared. About a microsecond.
std::uint32_t crc32c_joined(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes);

/// Bytes covered by one checksum of a Digest, unless it says otherwise: what one read of a damaged file can be narrowed
/// down to.
inline constexpr std::uint64_t kDigestChunk = std::uint64_t{4} << 20;
/// Whether a Digest may have checksums of this many bytes each: a power of two from 64 KiB to 1 GiB.
bool is_digest_chunk(std::uint64_t bytes);

/// What a file must look like: its size and the CRC-32C of each chunk of `chunk_bytes` bytes (the last may be shorter).
struct Digest {
  std::uint64_t size = 0;                    ///< bytes of the file
  std::vector<std::uint32_t> chunks;         ///< in its order
  std::uint64_t chunk_bytes = kDigestChunk;  ///< one that is_digest_chunk() allows
  bool operator==(const Digest&) const = default;
};

/// Builds a Digest from the bytes of a file as they are written. Not thread-safe.
class DigestBuilder {
 public:
  /// Throws Error unless is_digest_chunk(chunk_bytes).
  explicit DigestBuilder(std::uint64_t chunk_bytes = kDigestChunk);
  void update(std::span<const std::byte> bytes);  ///< the next ones of the file
  /// Copies `from` to `to` (from.size() bytes, any alignment, no overlap) and takes it in, reading memory once. The
  /// checksum is that of `from`, so a byte that goes wrong on its way into `to` or later does not match it.
  void copy(std::byte* to, std::span<const std::byte> from);
  Digest finish() &&;  ///< when all bytes are in; the builder is done then

 private:
  template <class Take>
  void chunk_by_chunk(std::span<const std::byte> bytes, const Take& take);

  Digest digest_;
};

/// The digest of bytes in memory. Throws as DigestBuilder does.
Digest digest_of(std::span<const std::byte> bytes, std::uint64_t chunk_bytes = kDigestChunk);
/// Reads the file by mapping. Throws InputError when it is missing or unreadable.
Digest digest_of_file(const std::string& path, std::uint64_t chunk_bytes = kDigestChunk);

}  // namespace tessera::format
