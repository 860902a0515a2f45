#pragma once
/// \file
/// What the streams of compressed files share: input in pieces, and complaints that name the byte.

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
  /// `name` of the file and `format` in messages: "gzip".
  Decompressor(std::unique_ptr<ByteStream> bytes, const std::string& name, const char* format);

  /// Takes bytes off the front of `input` and writes into `to`; returns how many were written. `last`: nothing follows
  /// behind `input`. Calls damaged() for what is not of the format.
  virtual std::size_t step(std::string_view& input, std::span<char> to, bool last) = 0;
  /// Whether the file may end here.
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
  bool last_ = false;  ///< nothing follows behind `input_`
  std::optional<std::string> complaint_;
};

/// With several members, as `cat a.gz b.gz` makes.
std::unique_ptr<ByteStream> gzip_stream(std::unique_ptr<ByteStream> bytes, const std::string& name);
/// With several frames; windows up to 128 MiB.
std::unique_ptr<ByteStream> zstd_stream(std::unique_ptr<ByteStream> bytes, const std::string& name);
/// With several streams; at most 256 MiB of memory.
std::unique_ptr<ByteStream> xz_stream(std::unique_ptr<ByteStream> bytes, const std::string& name);

}  // namespace tessera::corpus
