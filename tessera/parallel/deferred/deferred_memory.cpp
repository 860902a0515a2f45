#include <tessera/parallel/deferred/deferred_memory.h>

#include <c10/core/CPUAllocator.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <utility>

#include <tessera/base/allocated.h>

namespace tessera::parallel {

namespace {

// /proc/self/pagemap: 8 bytes per page; bit 63: in memory, bit 62: swapped out. (mincore would miss swapped pages.)
constexpr std::uint64_t has_memory = std::uint64_t{3} << 62;

int open_pagemap() { return ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC); }

bool pagemap_works() {
  const int fd = open_pagemap();
  if (fd < 0) return false;
  const long page = sysconf(_SC_PAGESIZE);
  volatile char on_stack = 1;  // a page that is certain to have memory
  std::uint64_t entry = 0;
  const auto at = static_cast<off_t>(reinterpret_cast<std::uintptr_t>(&on_stack) / static_cast<std::size_t>(page) * 8);
  const bool read = pread(fd, &entry, sizeof entry, at) == sizeof entry;
  close(fd);
  return read && (entry & has_memory) != 0;
}

}  // namespace

LazyPages::LazyPages(std::size_t bytes) {
  static const bool works = pagemap_works();
  if (!works || bytes == 0) return;
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return;
  data_ = data;
  bytes_ = bytes;
}

LazyPages::~LazyPages() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

LazyPages::LazyPages(LazyPages&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

LazyPages& LazyPages::operator=(LazyPages&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

bool LazyPages::touched() const {
  if (data_ == nullptr) return false;
  const int fd = open_pagemap();
  if (fd < 0) return true;  // pagemap was readable before; to be safe, keep the pages
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::array<std::uint64_t, 1024> entries;
  std::size_t at = reinterpret_cast<std::uintptr_t>(data_) / page;
  const std::size_t end = at + (bytes_ + page - 1) / page;
  bool found = false;
  while (at < end && !found) {
    const std::size_t count = std::min(entries.size(), end - at);
    const ssize_t got = pread(fd, entries.data(), count * 8, static_cast<off_t>(at * 8));
    if (got < static_cast<ssize_t>(count * 8)) found = true;
    found = found || std::any_of(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(count),
                                 [](std::uint64_t entry) { return (entry & has_memory) != 0; });
    at += count;
  }
  close(fd);
  return found;
}

c10::DataPtr LazyPages::release() && {
  auto* const pages = new LazyPages(std::move(*this));
  count_allocated(static_cast<std::int64_t>(pages->bytes_));
  const auto give_back = [](void* context) {
    auto* const released = static_cast<LazyPages*>(context);
    count_allocated(-static_cast<std::int64_t>(released->bytes_));
    delete released;
  };
  return {pages->data(), pages, give_back, c10::Device(c10::DeviceType::CPU)};
}

void LazyPages::will_be_written() const {
  if (data_ != nullptr) madvise(data_, bytes_, MADV_HUGEPAGE);  // only advice; harmless if ignored
}

c10::DataPtr allocate_materialized(std::size_t bytes) {
  constexpr std::size_t large = 256 * 1024;
  if (bytes >= large) {
    LazyPages pages(bytes);
    pages.will_be_written();
    if (pages.data() != nullptr) return std::move(pages).release();
  }
  return c10::GetCPUAllocator()->allocate(bytes);
}

}  // namespace tessera::parallel
