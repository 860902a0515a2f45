#pragma once
/// \file
/// A stream of bytes with a look-ahead window of one record.

#include <tessera/corpus/bytes/byte_stream.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::corpus {

/// Maximum record size, so that a damaged or hostile file (especially a compressed one) cannot exhaust the memory.
inline constexpr std::size_t max_record_bytes = std::size_t{1} << 30;

class Window {
 public:
  /// `name`: the file name for messages.
  Window(std::unique_ptr<ByteStream> bytes, std::string name, std::size_t longest = max_record_bytes);

  /// The bytes read and not yet dropped. Valid until the next more().
  std::string_view text() const { return {buffer_.data() + begin_, end_ - begin_}; }
  /// Reads more bytes and appends them; returns false at the end. Throws InputError for the stream's errors and when
  /// the text would exceed `longest`; every later call throws the same.
  bool more();
  void drop(std::size_t bytes) { begin_ += bytes; }  ///< drops bytes from the front; at most text().size()

  /// Bytes of the file on disk that correspond to the dropped bytes plus the first `taken` bytes of the text;
  /// approximate for a compressed file.
  std::uint64_t used(std::size_t taken = 0) const;
  const std::string& name() const { return name_; }

 private:
  std::unique_ptr<ByteStream> bytes_;
  std::string name_;
  std::size_t longest_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;
  std::uint64_t got_ = 0;  ///< total bytes read
};

}  // namespace tessera::corpus
