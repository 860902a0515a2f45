#pragma once
/// \file
/// manifest.json: the list of a folder's files with their sizes and checksums. It is written last, so a folder that has a
/// valid one is whole. The manifest carries a checksum of itself: a flipped bit in it is found too.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/format/crc32c.h>

namespace tessera::format {

inline constexpr const char* kManifestName = "manifest.json";

struct ManifestFile {
  std::string name;   ///< plain file name inside the folder
  Digest digest;
};

struct Manifest {
  std::int64_t step = 0;             ///< optimizer steps done
  std::vector<ManifestFile> files;
};

/// Whether `name` names a file directly inside a folder: not empty, no '/', no NUL, neither "." nor "..".
bool is_plain_file_name(std::string_view name);

/// Writes FOLDER/manifest.json atomically. Names must be plain and different.
void write_manifest(const std::string& folder, const Manifest& manifest);
/// Reads it and checks form, names and its own checksum. Throws InputError when it is missing or damaged.
Manifest read_manifest(const std::string& folder);
/// Checks that every listed file exists with the listed size (cheap: reads no data). Throws InputError.
void verify_sizes(const std::string& folder, const Manifest& manifest);
/// As verify_sizes, then reads every file and compares checksums; names the first damaged range of bytes. Throws InputError.
void verify_files(const std::string& folder, const Manifest& manifest);

}  // namespace tessera::format
