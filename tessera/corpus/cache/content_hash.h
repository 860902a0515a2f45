#pragma once
/// \file
/// corpus/cache/: tokens of files, made once, kept on disk and mapped by every process that wants them.
///
/// This header: hashes of contents, which tell whether two files hold the same.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tessera::corpus {

/// 128 bits. Not meant to withstand somebody who wants two files to collide.
struct ContentHash {
  std::array<std::uint64_t, 2> words = {};
  bool operator==(const ContentHash&) const = default;
  std::string hex() const;  ///< 32 digits
};
/// The inverse of hex(). Throws InputError naming `where`.
ContentHash parse_hash(std::string_view hex, const std::string& where);

/// The same on every machine and in every version (it is stored). Several GB/s.
ContentHash hash_of(std::span<const std::byte> bytes);
ContentHash hash_of(std::string_view bytes);

/// A file is hashed in chunks of so many bytes, each by itself, so that several may do it; the hash of the file is that
/// of its size and its chunks' hashes, in order.
inline constexpr std::uint64_t hash_chunk = std::uint64_t{8} << 20;
/// Chunks of a file of so many bytes.
std::uint64_t hash_chunks(std::uint64_t bytes);
ContentHash joined_hash(std::uint64_t bytes, std::span<const ContentHash> chunks);

/// Hashes chunks [first, last) of a file, reading it (not mapping: it may be cut meanwhile). Appends to `hashes`.
/// Throws InputError when the file is missing, unreadable or shorter.
void hash_file_chunks(const std::string& path, std::uint64_t first, std::uint64_t last, std::uint64_t bytes,
                      std::span<ContentHash> hashes);

}  // namespace tessera::corpus
