#pragma once
/// \file
/// A stream of bytes with a look ahead of as much as a record takes.

#include <tessera/corpus/bytes/byte_stream.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::corpus {

/// No record may be longer, so that a damaged or hostile file (a compressed one, above all) does not fill the memory.
inline constexpr std::size_t max_record_bytes = std::size_t{1} << 30;

class Window {
 public:
  /// `name` stands for the file in messages.
  Window(std::unique_ptr<ByteStream> bytes, std::string name, std::size_t longest = max_record_bytes);

  /// What was read and not dropped. Valid until the next more().
  std::string_view text() const { return {buffer_.data() + begin_, end_ - begin_}; }
  /// Reads more behind it; false at the end. Throws InputError for what the stream throws, and when the text would
  /// become longer than `longest`; so does every later call then.
  bool more();
  void drop(std::size_t bytes) { begin_ += bytes; }  ///< off the front; at most text().size()

  /// Bytes of the file on disk that were dropped, or are the first `taken` of the text; of a compressed file about.
  std::uint64_t used(std::size_t taken = 0) const;
  const std::string& name() const { return name_; }

 private:
  std::unique_ptr<ByteStream> bytes_;
  std::string name_;
  std::size_t longest_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;
  std::uint64_t got_ = 0;  ///< in all
};

}  // namespace tessera::corpus
