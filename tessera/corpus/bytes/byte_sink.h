#pragma once
/// \file
/// Writes files, compressed according to their names.

#include <tessera/corpus/records.h>

#include <memory>
#include <string>
#include <string_view>

namespace tessera::corpus {

/// Use from one thread at a time.
class ByteSink {
 public:
  virtual ~ByteSink() = default;  ///< without finish(), no file is created at the path
  /// Throws Error naming the file and errno.
  virtual void write(std::string_view bytes) = 0;
  /// Completes the file, syncs it to disk and renames it to its path, replacing an existing file. Call it once, last.
  virtual void finish() = 0;
};

/// Writes PATH.tmp.PID, which finish() renames. Compression levels are the defaults of the programs gzip and zstd; xz
/// uses level 1 (its default level 6 writes only 2 MB/s).
std::unique_ptr<ByteSink> create_file(const std::string& path, Compression compression);

}  // namespace tessera::corpus
