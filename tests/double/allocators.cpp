#include <tests/double/allocators.h>
#include <tests/double/memory.h>
#include <tests/double/order.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace cuda_double {
namespace {

class DeviceMemory final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const int device = current_device();
    void* p = cuda_double::allocate(bytes, device, current_stream(device));
    return {p, p, &release, c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device))};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(mirror(to), mirror(from), bytes);
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr& p, c10::Stream stream) override {
    record_stream(p.get(), stream.device_index(), stream.id());
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0].current = static_cast<std::int64_t>(bytes_in_use(device));
    stats.allocated_bytes[0].peak = static_cast<std::int64_t>(bytes_peak(device));
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex device) override { reset_peak(device); }
};

class PinnedMemory final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

  bool owns(const void* pointer) {
    const std::lock_guard lock(mutex_);
    const auto* p = static_cast<const char*>(pointer);
    auto it = blocks_.upper_bound(const_cast<char*>(p));
    if (it == blocks_.begin()) return false;
    --it;
    return p < it->first + it->second;
  }
  void give_back(void* p) {
    const std::lock_guard lock(mutex_);
    blocks_.erase(static_cast<char*>(p));
    std::free(p);
  }

 private:
  std::mutex mutex_;
  std::map<char*, std::size_t> blocks_;  // bytes
};

PinnedMemory& pinned() {
  static auto* p = new PinnedMemory;
  return *p;
}

void free_pinned(void* p) {
  if (p != nullptr) pinned().give_back(p);
}

c10::DataPtr PinnedMemory::allocate(std::size_t bytes) {
  void* p = nullptr;
  if (bytes > 0 && posix_memalign(&p, 4096, bytes) != 0) throw std::bad_alloc();
  const std::lock_guard lock(mutex_);
  if (p != nullptr) blocks_[static_cast<char*>(p)] = bytes;
  return {p, p, &free_pinned, c10::Device(c10::kCPU)};
}

c10::DeleterFnPtr PinnedMemory::raw_deleter() const { return &free_pinned; }

const bool registered = [] {
  c10::SetAllocator(c10::kCUDA, &device_allocator(), 1);
  at::setHostAllocator(c10::kCUDA, &pinned(), 1);
  return true;
}();

}  // namespace

c10::DeviceAllocator& device_allocator() {
  static auto* memory = new DeviceMemory;
  return *memory;
}

at::HostAllocator& pinned_allocator() { return pinned(); }
bool is_pinned(const void* pointer) { return pinned().owns(pointer); }

}  // namespace cuda_double
