#pragma once
/// \file
/// Computes checksums of parts of a file from the checksums of its chunks, without reading the file, and reads parts of
/// a file.

#include <tessera/format/manifest/crc32c.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tessera::storage {

/// Size limit of a manifest in bytes: a checksum per 4 MiB of 100 TB takes 300 MB.
inline constexpr std::uint64_t most_manifest = std::uint64_t{512} << 20;

/// CRC-32C of bytes [begin, end) of a file. `begin` must be a multiple of the digest's chunk size, and so must `end`
/// unless it is the file's end. Throws Error otherwise.
std::uint32_t crc_between(const format::Digest& digest, std::uint64_t begin, std::uint64_t end);

/// Reads into.size() bytes starting at `begin`. Throws Error naming `path` when the file is shorter or cannot be read.
void read_exactly(int fd, std::uint64_t begin, std::span<std::byte> into, const std::string& path);

}  // namespace tessera::storage
