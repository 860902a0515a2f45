#pragma once
/// \file
/// format/manifest/: what makes a folder of files one checkpoint: manifest, checksums, the index of pieces,
/// verification.
///
/// manifest.json: the list of a folder's files with their sizes and checksums. It is written last, so a folder that has
/// a valid one is whole. The manifest carries a checksum of itself: a flipped bit in it is found too.

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
  Digest digest;     ///< what the whole file must look like
};

/// The files that make a checkpoint whole, with their checksums.
struct Manifest {
  std::int64_t step = 0;            ///< optimizer steps done
  std::vector<ManifestFile> files;  ///< names differ
};

/// Whether `name` names a file directly inside a folder: not empty, no '/', no NUL, neither "." nor "..".
bool is_plain_file_name(std::string_view name);

/// The text of a manifest. Throws Error unless names are plain and different and all files have checksums of as many
/// bytes each.
std::string manifest_text(const Manifest& manifest);
/// Parses the text of a manifest and checks form, names and its own checksum; any text but what manifest_text gives is
/// refused, so that no changed byte goes unseen. `path` is for messages. Throws InputError.
Manifest parse_manifest(std::string_view text, const std::string& path);

/// Writes FOLDER/manifest.json atomically. Throws as manifest_text, and Error when writing fails.
void write_manifest(const std::string& folder, const Manifest& manifest);
/// Reads it. Throws InputError when it is missing or damaged.
Manifest read_manifest(const std::string& folder);
/// Checks that every listed file exists with the listed size (cheap: reads no data; verify.h compares the bytes).
/// Throws InputError.
void verify_sizes(const std::string& folder, const Manifest& manifest);

}  // namespace tessera::format
