#pragma once
/// \file
/// CPU bytes of tensors allocated by the calling thread (and by backward passes that it starts): current and peak since
/// the object was constructed.

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>
#include <memory>

namespace tessera::testing {

class Allocated {
 public:
  std::int64_t now() const { return counter_->now; }
  std::int64_t peak() const { return counter_->peak; }
  void reset_peak() { counter_->peak = counter_->now; }

 private:
  struct Counter final : c10::MemoryReportingInfoBase {
    std::int64_t now = 0, peak = 0;
    void reportMemoryUsage(void*, std::int64_t size, std::size_t, std::size_t, c10::Device) override {
      now += size;
      peak = std::max(peak, now);
    }
    bool memoryProfilingEnabled() const override { return true; }
  };
  std::shared_ptr<Counter> counter_ = std::make_shared<Counter>();
  c10::DebugInfoGuard guard_{c10::DebugInfoKind::PROFILER_STATE, counter_};
};

}  // namespace tessera::testing
