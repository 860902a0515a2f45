#pragma once
/// \file
/// Internal to record_step.cpp: the memory that autograd saves, and its peak.

#include <tessera/parallel/autograd/saved_tensors.h>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace tessera::parallel {

/// Keeps tensors unchanged and reports each storage when it is first saved.
class SavedCounter final : public SavedTensorPolicy {
 public:
  explicit SavedCounter(std::function<void(std::int64_t bytes)> saved) : books_(std::make_shared<Books>()) {
    books_->saved = std::move(saved);
  }
  std::unique_ptr<PackedTensor> pack(const at::Tensor& tensor) override {
    if (!tensor.has_storage()) return nullptr;
    return std::make_unique<Kept>(tensor, books_);
  }
  /// Bytes currently kept.
  std::int64_t now() const {
    const std::lock_guard lock(books_->mutex);
    return books_->now;
  }

 private:
  struct Use {
    int count = 0;
    std::int64_t bytes = 0;
  };
  struct Books {
    std::mutex mutex;
    std::map<const c10::StorageImpl*, Use> uses;
    std::int64_t now = 0;
    std::function<void(std::int64_t)> saved;
  };
  class Kept final : public PackedTensor {
   public:
    Kept(const at::Tensor& tensor, std::shared_ptr<Books> books)
        : tensor_(tensor), books_(std::move(books)), storage_(tensor.storage().unsafeGetStorageImpl()) {
      const auto bytes = static_cast<std::int64_t>(storage_->nbytes());
      {
        const std::lock_guard lock(books_->mutex);
        Use& use = books_->uses[storage_];
        if (use.count++ > 0) return;
        use.bytes = bytes;
        books_->now += bytes;
      }
      if (books_->saved) books_->saved(bytes);
    }
    ~Kept() override {
      const std::lock_guard lock(books_->mutex);
      const auto place = books_->uses.find(storage_);
      if (--place->second.count > 0) return;
      books_->now -= place->second.bytes;
      books_->uses.erase(place);
    }
    Kept(const Kept&) = delete;
    Kept& operator=(const Kept&) = delete;
    at::Tensor unpack() override { return tensor_.get(); }

   private:
    Versioned tensor_;
    std::shared_ptr<Books> books_;
    const c10::StorageImpl* storage_;
  };
  std::shared_ptr<Books> books_;
};

/// Bytes of tensors allocated since its construction, and their peak since the last query.
class MadeBytes {
 public:
  std::int64_t now() const { return counter_->now.load(); }
  /// The peak since the last call; resets it.
  std::int64_t take_peak() { return counter_->peak.exchange(counter_->now.load()); }

 private:
  struct Counter final : c10::MemoryReportingInfoBase {
    std::atomic<std::int64_t> now{0}, peak{0};
    void reportMemoryUsage(void*, std::int64_t size, std::size_t, std::size_t, c10::Device) override {
      const std::int64_t sum = now.fetch_add(size) + size;
      std::int64_t most = peak.load();
      while (most < sum && !peak.compare_exchange_weak(most, sum)) {
      }
    }
    bool memoryProfilingEnabled() const override { return true; }
  };
  std::shared_ptr<Counter> counter_ = std::make_shared<Counter>();
  c10::DebugInfoGuard guard_{c10::DebugInfoKind::PROFILER_STATE, counter_};
};

}  // namespace tessera::parallel
