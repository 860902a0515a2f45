#pragma once
/// \file
/// format/manifest/: makes a folder of files one checkpoint: manifest, checksums, index of pieces, verification.
///
/// manifest.json: the list of a folder's files with their sizes and checksums. It is written last, so a folder with a
/// valid manifest is complete. The manifest also contains its own checksum, so a flipped bit in the manifest is
/// detected, too.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/format/manifest/crc32c.h>

namespace tessera::format {

inline constexpr const char* kManifestName = "manifest.json";  ///< inside the folder

/// One file of a checkpoint: its name, size and checksum.
struct ManifestFile {
  std::string name;  ///< plain file name inside the folder
  Digest digest;     ///< expected contents of the whole file
};

/// The files of a complete checkpoint, with their checksums.
struct Manifest {
  std::int64_t step = 0;            ///< optimizer steps done
  std::vector<ManifestFile> files;  ///< names must be unique
};

/// Whether `name` is the name of a file directly inside a folder: not empty, no '/', no NUL, neither "." nor "..".
bool is_plain_file_name(std::string_view name);

/// The text of a manifest. Throws Error unless names are plain and unique and all files use the same chunk size.
std::string manifest_text(const Manifest& manifest);
/// Parses the text of a manifest and checks its form, its names and its own checksum. Refuses any text that differs
/// from manifest_text()'s output, so that every changed byte is detected. `path` is for messages. Throws InputError.
Manifest parse_manifest(std::string_view text, const std::string& path);

/// Writes FOLDER/manifest.json atomically. Throws like manifest_text(), and Error when writing fails.
void write_manifest(const std::string& folder, const Manifest& manifest);
/// Reads FOLDER/manifest.json. Throws InputError when it is missing or damaged.
Manifest read_manifest(const std::string& folder);
/// Checks that every listed file exists with the listed size (cheap: reads no data; verify.h compares the bytes).
/// Throws InputError.
void verify_sizes(const std::string& folder, const Manifest& manifest);

}  // namespace tessera::format
