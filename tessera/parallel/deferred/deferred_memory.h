#pragma once
/// \file
/// Address space without memory: a deferred tensor uses it until an operation is logged, so that a constructor may fill
/// it through raw pointers (accessors, at::tensor(vector), a table of positions) like any other tensor. Also memory
/// that is returned to the system when freed: parameters are materialised unit by unit to be cut into shards.

#include <c10/core/Allocator.h>

#include <cstddef>

namespace tessera::parallel {

/// Private pages that the kernel backs with memory when they are first written. Empty on systems where this cannot be
/// queried (no mmap, no /proc/self/pagemap); raw pointers of deferred tensors are then refused.
class LazyPages {
 public:
  LazyPages() = default;
  explicit LazyPages(std::size_t bytes);
  ~LazyPages();
  LazyPages(LazyPages&& other) noexcept;
  LazyPages& operator=(LazyPages&& other) noexcept;

  void* data() const { return data_; }  ///< nullptr when empty
  /// Whether any page has memory: it was read or written through data().
  bool touched() const;
  /// Hands the pages over as a tensor's memory (a c10 CPU DataPtr that frees them).
  c10::DataPtr release() &&;
  /// Asks for huge pages, for memory that is about to be written entirely.
  void will_be_written() const;

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Undefined memory for a materialised tensor: separate pages if it is large, else from LibTorch's CPU allocator.
c10::DataPtr allocate_materialized(std::size_t bytes);

}  // namespace tessera::parallel
