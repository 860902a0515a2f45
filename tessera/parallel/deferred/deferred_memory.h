#pragma once
/// \file
/// Address space without memory: what a deferred tensor has while nothing was logged of it, so that a constructor may
/// fill it through raw pointers (accessors, at::tensor(vector), a table of positions) as it would any other. And memory
/// that goes back to the system when it is freed: parameters are materialised unit by unit to be cut into shards.

#include <c10/core/Allocator.h>

#include <cstddef>

namespace tessera::parallel {

/// Private pages that the kernel gives memory when they are first written. Empty where that could not be found out
/// again (no mmap, no /proc/self/pagemap): then raw pointers of deferred tensors are refused.
class LazyPages {
 public:
  LazyPages() = default;
  explicit LazyPages(std::size_t bytes);
  ~LazyPages();
  LazyPages(LazyPages&& other) noexcept;
  LazyPages& operator=(LazyPages&& other) noexcept;

  void* data() const { return data_; }  ///< nullptr when empty
  /// Whether any page has memory: somebody has read or written through data().
  bool touched() const;
  /// The pages as a tensor's memory (c10's CPU DataPtr that frees them).
  c10::DataPtr release() &&;
  /// Asks for huge pages: for memory that will be written at once.
  void will_be_written() const;

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Undefined memory for a materialised tensor: pages of its own when it is large, else from LibTorch's CPU allocator.
c10::DataPtr allocate_materialized(std::size_t bytes);

}  // namespace tessera::parallel
