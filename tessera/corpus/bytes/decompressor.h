#pragma once
/// \file
/// Common base class of the decompressing streams: reads input in pieces and reports errors with the byte position.

#include <tessera/corpus/bytes/byte_stream.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::corpus {

class Decompressor : public ByteStream {
 public:
  std::size_t read(std::span<char> to) final;
  std::uint64_t used() const final;

 protected:
  /// `name` of the file and `format` ("gzip") are used in messages.
  Decompressor(std::unique_ptr<ByteStream> bytes, const std::string& name, const char* format);

  /// Consumes bytes from the front of `input` and writes into `to`; returns the number written. `last`: no input
  /// follows. Calls damaged() for malformed input.
  virtual std::size_t step(std::string_view& input, std::span<char> to, bool last) = 0;
  /// Whether the data may end here.
  virtual bool complete() const = 0;
  /// "a.jsonl.gz: the gzip data are damaged near byte 4711 of the file: REASON".
  [[noreturn]] void damaged(const std::string& reason);

 private:
  std::size_t next_bytes(std::span<char> to);

  std::unique_ptr<ByteStream> bytes_;
  std::string name_;
  const char* format_;
  std::vector<char> buffer_;
  std::string_view input_;
  bool last_ = false;  ///< no input follows `input_`
  std::optional<std::string> complaint_;
};

/// Supports several members, as `cat a.gz b.gz` creates.
std::unique_ptr<ByteStream> gzip_stream(std::unique_ptr<ByteStream> bytes, const std::string& name);
/// Supports several frames; windows up to 128 MiB.
std::unique_ptr<ByteStream> zstd_stream(std::unique_ptr<ByteStream> bytes, const std::string& name);
/// Supports several streams; at most 256 MiB of memory.
std::unique_ptr<ByteStream> xz_stream(std::unique_ptr<ByteStream> bytes, const std::string& name);

}  // namespace tessera::corpus
