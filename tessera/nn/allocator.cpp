#include <tessera/nn/allocator.h>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <malloc.h>
#include <sys/mman.h>

#include <tessera/base/allocated.h>
#include <tessera/base/error.h>
#include <bit>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace tessera::nn {
namespace {

constexpr std::size_t smallest = 128u << 10, huge_page = 2u << 20, unused_allowance = 256u << 20;

struct Block {
  void* data = nullptr;     ///< address given to the tensor
  std::size_t size = 0;     ///< size class in bytes
  std::size_t asked = 0;    ///< bytes requested by the tensor that owns it
  void* mapping = nullptr;  ///< argument of munmap
  std::size_t mapped = 0;
};

/// Rounds up to the next eighth of a power of two: multiples of 16 KB from 128 KB on.
std::size_t size_class(std::size_t bytes) {
  const std::size_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

Block map_block(std::size_t size) {
  const bool huge = size >= huge_page;
  const std::size_t mapped = huge ? size + huge_page : size;
  void* mapping = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED)
    throw OutOfMemory(concat("no memory for a tensor of ", format_bytes(size), ": ", std::strerror(errno)));
  char* data = static_cast<char*>(mapping);
  if (huge) {
    data += (huge_page - reinterpret_cast<std::uintptr_t>(data) % huge_page) % huge_page;
    madvise(data, size, MADV_HUGEPAGE);  // only advice: kernels without huge pages ignore it
  }
  return {data, size, 0, mapping, mapped};
}

/// Every pointer is its own context, because oneDNN's glue in LibTorch allocates raw memory (Allocator::raw_allocate).
class KeepingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes < smallest) {
      void* small = c10::GetDefaultCPUAllocator()->raw_allocate(bytes);
      count_allocated(held_by_heap(small));
      return {small, small, &give_back_small, c10::Device(c10::DeviceType::CPU)};
    }
    void* data = take(size_class(bytes), bytes);
    count_allocated(static_cast<std::int64_t>(bytes));
    return {data, data, &give_back, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

  void release() {
    const std::lock_guard lock(mutex_);
    release_unused();
  }

  KeptMemory kept() {
    const std::lock_guard lock(mutex_);
    return {static_cast<std::int64_t>(in_use_), static_cast<std::int64_t>(unused_)};
  }

  static KeepingAllocator& instance() {
    static KeepingAllocator* const allocator = new KeepingAllocator;  // outlives every tensor, including static ones
    return *allocator;
  }

 private:
  /// The heap knows the size of its blocks, which is a few bytes more than requested.
  static std::int64_t held_by_heap(void* small) { return static_cast<std::int64_t>(malloc_usable_size(small)); }

  void* take(std::size_t size, std::size_t asked) {
    const std::lock_guard lock(mutex_);
    auto& list = unused_blocks_[size];
    if (list.empty()) {
      if (unused_ > in_use_ && unused_ > unused_allowance) release_unused();
      list.push_back(new_block(size));
      unused_ += size;
    }
    Block block = list.back();
    block.asked = asked;
    live_blocks_.emplace(block.data, block);
    list.pop_back();
    unused_ -= size;
    in_use_ += size;
    return block.data;
  }

  /// If the system has no more memory, releases unused blocks and retries.
  Block new_block(std::size_t size) {
    try {
      return map_block(size);
    } catch (const OutOfMemory&) {
      if (unused_ == 0) throw;
    }
    release_unused();
    return map_block(size);
  }

  static void give_back(void* data) {
    KeepingAllocator& self = instance();
    {
      const std::lock_guard lock(self.mutex_);
      if (const auto live = self.live_blocks_.find(data); live != self.live_blocks_.end()) {
        const Block block = live->second;
        self.live_blocks_.erase(live);
        self.unused_blocks_[block.size].push_back(block);
        self.in_use_ -= block.size;
        self.unused_ += block.size;
        count_allocated(-static_cast<std::int64_t>(block.asked));
        return;
      }
    }
    give_back_small(data);
  }

  static void give_back_small(void* data) {
    count_allocated(-held_by_heap(data));
    c10::GetDefaultCPUAllocator()->raw_deallocate(data);
  }

  void release_unused() {
    for (auto& [size, list] : unused_blocks_) {
      for (const Block& block : list) munmap(block.mapping, block.mapped);
      list.clear();
    }
    unused_ = 0;
  }

  std::mutex mutex_;
  std::map<std::size_t, std::vector<Block>>
      unused_blocks_;  ///< by size class; the most recently freed block is reused first
  std::unordered_map<void*, Block> live_blocks_;
  std::size_t in_use_ = 0, unused_ = 0;
};

}  // namespace

void keep_memory() {
  static const bool once = [] {
    c10::SetCPUAllocator(&KeepingAllocator::instance(), /*priority=*/1);
    return true;
  }();
  static_cast<void>(once);
}

void release_unused_memory() { KeepingAllocator::instance().release(); }

KeptMemory kept_memory() { return KeepingAllocator::instance().kept(); }

}  // namespace tessera::nn
