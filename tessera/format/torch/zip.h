#pragma once
/// \file
/// ZIP archives as written by torch.save (PKWARE APPNOTE 6.3.3): entries are stored uncompressed, so that each is a
/// range of the file; sizes have 64 bits.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::format {

struct ZipEntry {
  std::string name;
  std::uint64_t begin = 0, end = 0;  ///< byte range in the file
  std::uint32_t crc32 = 0;           ///< checksum of these bytes, from the archive
};

/// The entries of the archive `file`, in directory order. Checked before anything is allocated: the directory is inside
/// the file, every entry precedes it, no two entries overlap, names are unique, nothing is compressed or encrypted.
/// Throws InputError naming `path`, the entry, the rule and the numbers.
std::vector<ZipEntry> parse_zip(std::span<const std::byte> file, const std::string& path);

/// CRC-32 (ISO 3309, as in ZIP): crc32("123456789") == 0xCBF43926.
std::uint32_t crc32(std::span<const std::byte> bytes);

}  // namespace tessera::format
