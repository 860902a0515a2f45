// Sources of bytes: a range of a file, or memory.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <tessera/base/error.h>
#include <tessera/corpus/bytes/byte_stream.h>

namespace tessera::corpus {
namespace {

class FileRange : public ByteStream {
 public:
  FileRange(const std::string& path, std::uint64_t begin, std::uint64_t end)
      : path_(path), begin_(begin), at_(begin), end_(end), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0) throw InputError(concat("cannot open '", path, "': ", std::strerror(errno)));
    ::posix_fadvise(fd_, static_cast<off_t>(begin), static_cast<off_t>(end - begin), POSIX_FADV_SEQUENTIAL);
  }
  ~FileRange() override { ::close(fd_); }
  FileRange(const FileRange&) = delete;
  FileRange& operator=(const FileRange&) = delete;

  std::size_t read(std::span<char> to) override {
    const auto want = static_cast<std::size_t>(std::min<std::uint64_t>(to.size(), end_ - at_));
    if (want == 0) return 0;
    ssize_t got;
    do {
      got = ::pread(fd_, to.data(), want, static_cast<off_t>(at_));
    } while (got < 0 && errno == EINTR);
    if (got < 0) throw InputError(concat(path_, ": cannot be read at byte ", at_, ": ", std::strerror(errno)));
    if (got == 0)
      throw InputError(
          concat(path_, ": ends at byte ", at_, ", but had ", end_, " bytes when it was opened: it was truncated"));
    at_ += static_cast<std::uint64_t>(got);
    return static_cast<std::size_t>(got);
  }

  std::uint64_t used() const override { return at_ - begin_; }

 private:
  std::string path_;
  std::uint64_t begin_, at_, end_;
  int fd_;
};

class Kept : public ByteStream {
 public:
  explicit Kept(std::string_view bytes) : bytes_(bytes) {}
  std::size_t read(std::span<char> to) override {
    const std::size_t part = bytes_.copy(to.data(), to.size(), used_);
    used_ += part;
    return part;
  }
  std::uint64_t used() const override { return used_; }

 private:
  std::string_view bytes_;
  std::size_t used_ = 0;
};

}  // namespace

std::unique_ptr<ByteStream> stream_of(std::string_view bytes) { return std::make_unique<Kept>(bytes); }

std::unique_ptr<ByteStream> open_range(const std::string& path, std::uint64_t begin, std::uint64_t end) {
  return std::make_unique<FileRange>(path, begin, end);
}

}  // namespace tessera::corpus
