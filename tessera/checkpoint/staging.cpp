#include <tessera/checkpoint/staging.h>

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::checkpoint {

StagingBuffer::~StagingBuffer() { release(); }

void StagingBuffer::release() {
  if (data_ != nullptr) ::munmap(data_, size_);
  data_ = nullptr;
  size_ = 0;
}

std::span<std::byte> StagingBuffer::reserve(std::size_t bytes) {
  bytes = aligned_size(bytes);
  if (bytes <= size_) return {data_, size_};
  release();  // release first: two copies of the state would double the memory
  void* const made = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED)
    throw Error(concat("no memory for a copy of this rank's training state (", format_bytes(bytes),
                       "): ", std::strerror(errno), "; --async_save false writes it without a copy"));
  data_ = static_cast<std::byte*>(made);
  size_ = bytes;
  ::madvise(data_, size_, MADV_HUGEPAGE);  // fewer faults on kernels with huge pages; only speed depends on it
#ifdef MADV_POPULATE_WRITE
  ::madvise(data_, size_, MADV_POPULATE_WRITE);  // also only for speed: otherwise the first copy takes the page faults
#endif
  return {data_, size_};
}

}  // namespace tessera::checkpoint
