#pragma once
/// \file
/// Is this folder what was written? Compares a folder with its manifest.json (format/manifest/manifest.h): form, sizes,
/// then every byte. Several processes can share the reading, and what was read into its place before need not be read
/// again (format/manifest/read_sums.h). Files are read with pread through a small buffer, so one that is cut or
/// replaced meanwhile is a finding and not a signal.

#include <tessera/format/manifest/manifest.h>
#include <tessera/format/manifest/read_sums.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tessera::format {

/// Which part of the bytes this caller reads: the chunks of all files are dealt out to `ranks` callers
/// (layout/owners.h), about the same number of bytes to read to each; each chunk is in exactly one part. {0, 1}: all of
/// them.
struct Share {
  int rank = 0;
  int ranks = 1;
};

/// One thing that is not as it was written.
struct Damage {
  std::string file;  ///< name inside the folder; "manifest.json": the list itself
  std::uint64_t
      begin = 0,
      end = 0;  ///< bytes of the file, whole chunks; the file's listed size when it is missing or has another size
  std::vector<std::string>
      tensors;       ///< those of a safetensors file, that lie in [begin, end); "the header" is one; {}: not known
  std::string text;  ///< one line: "model.safetensors: bytes 4194304 to 8388608 are damaged (h.0.weight and 3 more)"
};

struct Verdict {
  Manifest manifest;             ///< without files when it could not be read
  std::vector<Damage> damages;   ///< in the manifest's order; neighbouring chunks are one damage
  std::uint64_t bytes_read = 0;  ///< by this caller
  bool whole() const { return damages.empty(); }
  std::string text() const;  ///< the damages' lines, joined by "; " (at most three, then how many more); "" when whole
};

/// Called from the calling thread after each chunk: bytes of this share that are done, and all of them.
using VerifyProgress = std::function<void(std::uint64_t done, std::uint64_t all)>;

/// What is wrong with a folder. Findings are returned, not thrown: of several callers each has its own, and none should
/// leave the others waiting. Every caller checks the manifest's form and own checksum, and that each listed file is
/// there, is a regular file (no symbolic link) and has its size. Then it reads its share of the bytes. Rank 0 of the
/// share also checks names: what a listed NAME.safetensors.index.json names is listed, and no file lies there that
/// readers would take instead of a listed one. `read` (of this folder; null: nothing): what has been read already is
/// not read again, only what lies between; every caller must know the same (ReadSums::hear_all). Throws Error only for
/// ranks < 1 or rank outside [0, ranks). May be called from several threads.
Verdict verify_folder(const std::string& folder, const Share& share = {}, const VerifyProgress& progress = {},
                      const ReadSums* read = nullptr);

}  // namespace tessera::format
