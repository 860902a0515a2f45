#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/corpus/bytes/byte_sink.h>
#include <tessera/corpus/bytes/compressor.h>

namespace tessera::corpus {
namespace {

class NewFile : public ByteSink {
 public:
  NewFile(const std::string& path, std::unique_ptr<Compressor> compressor)
      : path_(path), temporary_(concat(path, ".tmp.", ::getpid())), compressor_(std::move(compressor)) {
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd_ < 0) fail("cannot create");
    buffer_.reserve(buffer_bytes);
  }
  ~NewFile() override {
    if (fd_ >= 0) ::close(fd_);
    if (!finished_) ::unlink(temporary_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(std::string_view bytes) override {
    if (compressor_) {
      compressor_->add(bytes, buffer_);
    } else {
      buffer_ += bytes;
    }
    if (buffer_.size() >= buffer_bytes) flush();
  }

  void finish() override {
    if (compressor_) compressor_->end(buffer_);
    flush();
    if (::fsync(fd_) != 0) fail("cannot sync");
    const int fd = std::exchange(fd_, -1);
    if (::close(fd) != 0) fail("cannot close");
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot rename");
    finished_ = true;
  }

 private:
  static constexpr std::size_t buffer_bytes = std::size_t{256} << 10;

  void flush() {
    write_all(fd_, std::as_bytes(std::span(buffer_)), temporary_);
    buffer_.clear();
  }
  [[noreturn]] void fail(const char* what) const {
    throw Error(concat(what, " '", temporary_, "': ", std::strerror(errno)));
  }

  std::string path_, temporary_;
  std::unique_ptr<Compressor> compressor_;
  int fd_ = -1;
  std::string buffer_;
  bool finished_ = false;
};

std::unique_ptr<Compressor> compressor_for(Compression compression) {
  switch (compression) {
    case Compression::none:
      return nullptr;
    case Compression::gzip:
      return gzip_compressor();
    case Compression::zstd:
      return zstd_compressor();
    case Compression::xz:
      return xz_compressor();
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<ByteSink> create_file(const std::string& path, Compression compression) {
  return std::make_unique<NewFile>(path, compressor_for(compression));
}

}  // namespace tessera::corpus
