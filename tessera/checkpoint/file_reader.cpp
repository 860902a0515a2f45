#include <tessera/checkpoint/file_reader.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <tessera/base/error.h>

namespace tessera::checkpoint {
namespace {

// Bytes per read: they stay in the processor's cache until their checksum is computed.
constexpr std::int64_t block_bytes = std::int64_t{1} << 20;

}  // namespace

FileReader::FileReader(std::string path, std::shared_ptr<format::ReadSums> sums)
    : path_(std::move(path)), fd_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)), sums_(std::move(sums)) {
  if (fd_ < 0) throw Error(concat(path_, ": cannot open: ", std::strerror(errno)));
  // Twice the system's usual read-ahead: the disk should not wait while a page of memory is cleared for the next data.
  // (Announcing the next ranges with WILLNEED is slower: the system then caches a file in small pages.)
  ::posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL);
  if (sums_) number_ = sums_->file_at(path_);
  if (!number_) sums_ = nullptr;
}

FileReader::~FileReader() { ::close(fd_); }

void FileReader::read(void* to, std::int64_t bytes, std::uint64_t offset) const {
  format::ReadRun run(sums_.get(), number_.value_or(0), offset);
  auto* at = static_cast<std::byte*>(to);
  while (bytes > 0) {
    const ssize_t got =
        ::pread(fd_, at, static_cast<std::size_t>(std::min(bytes, block_bytes)), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(concat(path_, ": cannot read at byte ", offset, ": ", std::strerror(errno)));
    if (got == 0)
      throw InputError(concat(path_, ": the file ends at byte ", offset, ", but its header specifies more data"));
    run.take({at, static_cast<std::size_t>(got)});
    at += got, offset += static_cast<std::uint64_t>(got), bytes -= got;
  }
  run.end();
}

}  // namespace tessera::checkpoint
