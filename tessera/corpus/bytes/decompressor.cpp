#include <tessera/corpus/bytes/decompressor.h>

#include <tessera/base/error.h>

namespace tessera::corpus {

Decompressor::Decompressor(const SourceFile& file, const char* format)
    : path_(file.path),
      format_(format),
      file_(open_range(file.path, 0, file.bytes)),
      buffer_(std::size_t{64} << 10),
      size_(file.bytes) {}

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
    if (input_.empty() && taken_ < size_) {
      const std::size_t got = file_->read(buffer_);
      input_ = {buffer_.data(), got};
      taken_ += got;
    }
    const bool last = taken_ == size_;
    const std::size_t before = input_.size();
    const std::size_t written = step(input_, to, last);
    if (written > 0) return written;
    if (input_.empty() && last) {
      if (!complete()) damaged("the file ends in the middle; was it copied or downloaded completely?");
      return 0;
    }
    if (input_.size() == before && before > 0) damaged("nothing can be made of what follows");
  }
  return 0;
}

std::uint64_t Decompressor::used() const { return taken_ - input_.size(); }

void Decompressor::damaged(const std::string& reason) {
  throw InputError(concat(path_, ": the ", format_, " data are damaged near byte ", used(), " of the file: ", reason));
}

std::unique_ptr<ByteStream> open_bytes(const SourceFile& file) {
  switch (file.compression) {
    case Compression::none:
      return open_range(file.path, 0, file.bytes);
    case Compression::gzip:
      return open_gzip(file);
    case Compression::zstd:
      return open_zstd(file);
    case Compression::xz:
      return open_xz(file);
  }
  TESSERA_CHECK(false, "compression ", static_cast<int>(file.compression));
}

}  // namespace tessera::corpus
