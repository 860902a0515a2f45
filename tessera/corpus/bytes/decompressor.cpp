#include <tessera/corpus/bytes/decompressor.h>

#include <tessera/base/error.h>

namespace tessera::corpus {

Decompressor::Decompressor(std::unique_ptr<ByteStream> bytes, const std::string& name, const char* format)
    : bytes_(std::move(bytes)), name_(name), format_(format), buffer_(std::size_t{64} << 10) {}

std::size_t Decompressor::read(std::span<char> to) {
  if (complaint_) throw InputError(*complaint_);
  try {
    return next_bytes(to);
  } catch (const InputError& error) {
    complaint_ = error.what();
    throw;
  }
}

std::size_t Decompressor::next_bytes(std::span<char> to) {
  while (!to.empty()) {
    if (input_.empty() && !last_) {
      input_ = {buffer_.data(), bytes_->read(buffer_)};
      last_ = input_.empty();
    }
    const std::size_t before = input_.size();
    const std::size_t written = step(input_, to, last_);
    if (written > 0) return written;
    if (input_.empty() && last_) {
      if (!complete()) damaged("the file is truncated; was it copied or downloaded completely?");
      return 0;
    }
    if (input_.size() == before && before > 0) damaged("the data that follow are not valid");
  }
  return 0;
}

std::uint64_t Decompressor::used() const { return bytes_->used() - input_.size(); }

void Decompressor::damaged(const std::string& reason) {
  throw InputError(concat(name_, ": the ", format_, " data are damaged near byte ", used(), " of the file: ", reason));
}

std::unique_ptr<ByteStream> decompressed(std::unique_ptr<ByteStream> bytes, Compression compression,
                                         const std::string& name) {
  switch (compression) {
    case Compression::none:
      return bytes;
    case Compression::gzip:
      return gzip_stream(std::move(bytes), name);
    case Compression::zstd:
      return zstd_stream(std::move(bytes), name);
    case Compression::xz:
      return xz_stream(std::move(bytes), name);
  }
  TESSERA_CHECK(false, "compression ", static_cast<int>(compression));
}

std::unique_ptr<ByteStream> open_bytes(const SourceFile& file) {
  return decompressed(open_range(file.path, 0, file.bytes), file.compression, file.path);
}

}  // namespace tessera::corpus
