#include <tessera/checkpoint/read_back.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/checkpoint/direct_file.h>
#include <tessera/checkpoint/staging.h>

namespace tessera::checkpoint {
namespace {

constexpr std::size_t at_once = std::size_t{4} << 20;  // bytes per call

[[noreturn]] void fail(const std::string& path) {
  throw Error(concat("cannot read back ", path, ": ", std::strerror(errno)));
}

}  // namespace

void read_back(const std::string& path, const format::Digest& written, const std::atomic<bool>& cancelled) {
  const DirectFile file(path, O_RDONLY);
  if (file.fd() < 0) fail(path);
  ::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_DONTNEED);  // fallback without direct I/O
  StagingBuffer buffer;
  const std::span<std::byte> memory = buffer.reserve(std::min<std::size_t>(at_once, aligned_size(written.size + 1)));
  format::DigestBuilder builder(written.chunk_bytes);
  std::uint64_t done = 0;
  for (;;) {
    if (cancelled.load(std::memory_order_relaxed)) throw Error(concat(path, ": reading back was stopped"));
    const ssize_t n = ::pread(file.fd(), memory.data(), memory.size(), static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(path);
    if (n == 0) break;
    builder.update(memory.first(static_cast<std::size_t>(n)));
    done += static_cast<std::uint64_t>(n);
    if (done >= written.size && static_cast<std::size_t>(n) < memory.size())
      break;  // the end, which is not a multiple of the alignment
  }
  const format::Digest found = std::move(builder).finish();
  if (found == written) return;
  if (found.size != written.size)
    throw Error(concat(path, ": ", written.size, " bytes were written, but ", found.size, " are in the file"));
  const auto differ = std::mismatch(found.chunks.begin(), found.chunks.end(), written.chunks.begin());
  const std::uint64_t begin = static_cast<std::uint64_t>(differ.first - found.chunks.begin()) * written.chunk_bytes;
  throw Error(
      concat(path, ": bytes ", begin, " to ", std::min(begin + written.chunk_bytes, written.size),
             " read back from the disk differ from what was written: the disk, its controller or memory is failing"));
}

void forget_pages(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  ::close(fd);
}

}  // namespace tessera::checkpoint
