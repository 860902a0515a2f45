#pragma once
/// \file
/// corpus/bytes/: the bytes of a file as a stream, decompressed, and cut into lines; memory of some hundred KiB.
///
/// Files are read, not mapped: mapped pages would count as memory of the process, and a file that somebody shortens
/// meanwhile would end it with SIGBUS.

#include <tessera/corpus/records.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tessera::corpus {

/// One thread at a time.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// Fills `to` from its beginning; returns how much, 0 at the end only. Throws InputError naming the file, the byte
  /// and the reason; so does every later call then.
  virtual std::size_t read(std::span<char> to) = 0;
  virtual std::uint64_t used() const = 0;  ///< bytes of the file on disk that were taken, of a range: of this
};

/// The bytes [begin, end) of a file as they are. Throws InputError when the file cannot be opened or is shorter.
std::unique_ptr<ByteStream> open_range(const std::string& path, std::uint64_t begin, std::uint64_t end);

/// Bytes that the caller keeps.
std::unique_ptr<ByteStream> stream_of(std::string_view bytes);

/// What a stream of compressed bytes holds; `name` stands for the file in messages.
std::unique_ptr<ByteStream> decompressed(std::unique_ptr<ByteStream> bytes, Compression compression,
                                         const std::string& name);

/// What the file holds, decompressed.
std::unique_ptr<ByteStream> open_bytes(const SourceFile& file);

}  // namespace tessera::corpus
