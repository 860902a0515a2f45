#pragma once
/// \file
/// ZIP archives as torch.save writes them (PKWARE APPNOTE 6.3.3): entries that are stored, not compressed, so that each
/// is a range of the file; 64-bit sizes.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::format {

struct ZipEntry {
  std::string name;
  std::uint64_t begin = 0, end = 0;  ///< bytes of the file
  std::uint32_t crc32 = 0;           ///< checksum of these bytes, as the archive says
};

/// The entries of the archive that `file` is, in the directory's order. Checked before anything is allocated: the
/// directory lies in the file, every entry in front of it, no two overlap, names differ, nothing is compressed or
/// encrypted. Throws InputError naming `path`, the entry, the rule and the numbers.
std::vector<ZipEntry> parse_zip(std::span<const std::byte> file, const std::string& path);

/// CRC-32 (ISO 3309, the ZIP's): crc32("123456789") == 0xCBF43926.
std::uint32_t crc32(std::span<const std::byte> bytes);

}  // namespace tessera::format
