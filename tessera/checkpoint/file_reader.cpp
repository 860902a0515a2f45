#include <tessera/checkpoint/file_reader.h>

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <tessera/base/error.h>

namespace tessera::checkpoint {
namespace {

// What is read at once: it stays in the processor's cache until its checksum is taken.
constexpr std::int64_t block_bytes = std::int64_t{1} << 20;
// How far the system reads ahead. By itself it begins with little after each gap, and two processes that follow each other in a file
// confuse it; and while a page of memory is cleared for what comes next, the disk should not wait.
constexpr std::uint64_t ahead_bytes = std::uint64_t{16} << 20;
// Asked for at once: the kernel cuts what exceeds the device's own limit.
constexpr std::uint64_t announced_bytes = std::uint64_t{1} << 20;

}  // namespace

FileReader::FileReader(std::string path, Reading how)
    : path_(std::move(path)), fd_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)), how_(std::move(how)) {
  if (fd_ < 0) throw Error(concat(path_, ": cannot open: ", std::strerror(errno)));
  if (how_.sums) number_ = how_.sums->file_at(path_);
  if (!number_) how_.sums = nullptr;
}

FileReader::~FileReader() { ::close(fd_); }

void FileReader::read(void* to, std::int64_t bytes, std::uint64_t offset) const {
  format::ReadRun run(how_.sums.get(), number_.value_or(0), offset);
  const std::uint64_t end = offset + static_cast<std::uint64_t>(bytes) + (how_.together ? ahead_bytes : 0);
  auto* at = static_cast<std::byte*>(to);
  while (bytes > 0) {
    const iovec place{at, static_cast<std::size_t>(std::min(bytes, block_bytes))};
    ssize_t got = ::preadv2(fd_, &place, 1, static_cast<off_t>(offset), RWF_NOWAIT);
    if (got <= 0) {  // it is not in memory (or this cannot be told, or there is no more)
      announce(offset, std::min(end, offset + ahead_bytes));
      got = ::preadv(fd_, &place, 1, static_cast<off_t>(offset));
    }
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(concat(path_, ": cannot read at byte ", offset, ": ", std::strerror(errno)));
    if (got == 0) throw InputError(concat(path_, ": the file ends at byte ", offset, ", its header says otherwise"));
    run.take({at, static_cast<std::size_t>(got)});
    at += got, offset += static_cast<std::uint64_t>(got), bytes -= got;
  }
  run.end();
}

/// Tells the system that [begin, end) will be read, as far as it has not been told. (Advice: whether it is taken does not matter.)
void FileReader::announce(std::uint64_t begin, std::uint64_t end) const {
  if (end - begin <= static_cast<std::uint64_t>(block_bytes)) return;  // the next read tells it as well
  std::uint64_t at = announced_.load(std::memory_order_relaxed);
  if (at < begin || at > begin + 2 * ahead_bytes) at = begin;  // reading goes on elsewhere
  if (at >= end) return;
  for (std::uint64_t bytes = 0; at < end; at += bytes) {
    bytes = std::min(announced_bytes, end - at);
    ::posix_fadvise(fd_, static_cast<off_t>(at), static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);
  }
  announced_.store(at, std::memory_order_relaxed);
}

}  // namespace tessera::checkpoint
