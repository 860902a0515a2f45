#pragma once
/// \file
/// Writing files, compressed where their name says so.

#include <tessera/corpus/records.h>

#include <memory>
#include <string>
#include <string_view>

namespace tessera::corpus {

/// One thread at a time.
class ByteSink {
 public:
  virtual ~ByteSink() = default;  ///< without finish() nothing is left under the path
  /// Throws Error naming the file and errno.
  virtual void write(std::string_view bytes) = 0;
  /// Ends the file, forces it to the disk and gives it its name; a file of that name is replaced. Call it once, last.
  virtual void finish() = 0;
};

/// Writes PATH.tmp.PID, which finish() renames. Levels: those that the programs gzip, zstd and xz take themselves, but
/// xz -1 (its own level 6 writes 2 MB/s).
std::unique_ptr<ByteSink> create_file(const std::string& path, Compression compression);

}  // namespace tessera::corpus
