#pragma once
/// \file
/// corpus/bytes/: the bytes of a file as a stream, decompressed and cut into lines, in a few hundred KiB of memory.
///
/// Files are read, not mapped: mapped pages would count as the process's memory, and truncating a mapped file would end
/// the process with SIGBUS.

#include <tessera/corpus/records.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tessera::corpus {

/// Use from one thread at a time.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// Fills `to` from its start; returns the number of bytes, 0 only at the end. Throws InputError naming the file, the
  /// byte and the reason; every later call throws the same.
  virtual std::size_t read(std::span<char> to) = 0;
  virtual std::uint64_t used() const = 0;  ///< bytes consumed from the file on disk or, for a range, from the range
};

/// The raw bytes [begin, end) of a file. Throws InputError when the file cannot be opened or is shorter.
std::unique_ptr<ByteStream> open_range(const std::string& path, std::uint64_t begin, std::uint64_t end);

/// Bytes in memory, which must outlive the stream.
std::unique_ptr<ByteStream> stream_of(std::string_view bytes);

/// The decompressed contents of a stream; `name` is the file name for messages.
std::unique_ptr<ByteStream> decompressed(std::unique_ptr<ByteStream> bytes, Compression compression,
                                         const std::string& name);

/// The decompressed contents of the file.
std::unique_ptr<ByteStream> open_bytes(const SourceFile& file);

}  // namespace tessera::corpus
