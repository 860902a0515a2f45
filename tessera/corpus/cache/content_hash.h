#pragma once
/// \file
/// corpus/cache/: tokens of files, created once, kept on disk, and mapped by every process that uses them.
///
/// This header: content hashes, which identify files with equal contents.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tessera::corpus {

/// 128 bits. Not cryptographic: does not resist deliberate collisions.
struct ContentHash {
  std::array<std::uint64_t, 2> words = {};
  bool operator==(const ContentHash&) const = default;
  std::string hex() const;  ///< 32 digits
};
/// The inverse of hex(). Throws InputError naming `where`.
ContentHash parse_hash(std::string_view hex, const std::string& where);

/// The same on every machine and in every version, because the hash is stored. Processes several GB/s.
ContentHash hash_of(std::span<const std::byte> bytes);
ContentHash hash_of(std::string_view bytes);

/// A file is hashed in chunks of this many bytes, each independently, so that several threads can share the work; the
/// file's hash is the hash of its size and its chunks' hashes, in order.
inline constexpr std::uint64_t hash_chunk = std::uint64_t{8} << 20;
/// Number of chunks of a file of `bytes` bytes.
std::uint64_t hash_chunks(std::uint64_t bytes);
ContentHash joined_hash(std::uint64_t bytes, std::span<const ContentHash> chunks);

/// Hashes chunks [first, last) of a file into `hashes`. Reads instead of mapping, because the file may be truncated at
/// any time. Throws InputError when the file is missing, unreadable or shorter.
void hash_file_chunks(const std::string& path, std::uint64_t first, std::uint64_t last, std::uint64_t bytes,
                      std::span<ContentHash> hashes);

}  // namespace tessera::corpus
