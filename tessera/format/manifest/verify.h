#pragma once
/// \file
/// Compares a folder with its manifest.json (format/manifest/manifest.h): form, sizes, then every byte. Several
/// processes can share the reading, and data already loaded need not be read again (format/manifest/read_sums.h). Files
/// are read with pread through a small buffer, so a file truncated or replaced in the meantime is reported instead of
/// raising a signal.

#include <tessera/format/manifest/manifest.h>
#include <tessera/format/manifest/read_sums.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tessera::format {

/// The part of the bytes that this caller reads: the chunks of all files are distributed over `ranks` callers
/// (layout/owners.h) so that each reads about the same number of bytes; each chunk is in exactly one part. {0, 1}: all
/// of them.
struct Share {
  int rank = 0;
  int ranks = 1;
};

/// One deviation from the contents that were written.
struct Damage {
  std::string file;  ///< name inside the folder; "manifest.json": the manifest itself
  /// bytes, whole chunks; [0, listed size) if the file is missing or has a different size
  std::uint64_t begin = 0, end = 0;
  std::vector<std::string>
      tensors;       ///< for a safetensors file, the tensors in [begin, end), including "the header"; {}: unknown
  std::string text;  ///< one line: "model.safetensors: bytes 4194304 to 8388608 are damaged (h.0.weight and 3 more)"
};

struct Verdict {
  Manifest manifest;             ///< has no files if it could not be read
  std::vector<Damage> damages;   ///< in manifest order; adjacent damaged chunks are merged
  std::uint64_t bytes_read = 0;  ///< by this caller
  bool whole() const { return damages.empty(); }
  std::string text() const;  ///< one line per damage, joined by "; " (at most three, then a count); "" if intact
};

/// Called from the calling thread after each chunk, with the bytes of this share done and their total.
using VerifyProgress = std::function<void(std::uint64_t done, std::uint64_t all)>;

/// Finds the damage in a folder. It is returned, not thrown: callers may find different damage, and none should leave
/// the others waiting. Every caller checks the manifest's form and own checksum, and that each listed file exists, is a
/// regular file (not a symbolic link) and has the listed size. Then it reads its share of the bytes. Rank 0 of the
/// share also checks names: files named by a listed NAME.safetensors.index.json must be listed, and no file may exist
/// that readers would prefer to a listed one. `read` (for this folder; null: nothing): data already read is not read
/// again, only the gaps; every caller must have the same knowledge (ReadSums::hear_all). Throws Error only for ranks <
/// 1 or rank outside [0, ranks). May be called from several threads.
Verdict verify_folder(const std::string& folder, const Share& share = {}, const VerifyProgress& progress = {},
                      const ReadSums* read = nullptr);

}  // namespace tessera::format
