#pragma once
/// \file
/// Allocates tensors in the arena of a segment (segment.h). Reuses touched pages first, because faulting in a fresh
/// page costs more than its share of a collective.

#include <tessera/wire/shm/segment.h>

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace tessera::wire::shm {

/// Allocator over one MemoryRange. Thread-safe. Two kinds of pieces:
/// - up to 2 KB: from slabs of 64 KB, one free list per size class (powers of two from 64 bytes); slabs are never
/// freed;
/// - larger: whole pages, best fit (lowest address among equals); free neighbours are merged. If more
///   than `keep` bytes of touched pages are free, the largest free blocks of >= 1 MB are returned to the system.
/// A forked child must not use its parent's arena: the pieces belong to the parent (free() does nothing there).
class Arena {
 public:
  static constexpr std::size_t smallest = 64, largest_small = 2048, slab = 64 << 10, returnable = 1 << 20;

  /// `range.data` is page-aligned; pages exist once written, and MADV_REMOVE frees them (shared memory).
  Arena(MemoryRange range, std::size_t keep);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// 64-byte aligned, page-aligned from 2049 bytes; contents undefined. bytes >= 1. Throws Error with the numbers if no
  /// free block is large enough.
  void* allocate(std::size_t bytes);
  /// `piece`: a result of allocate(). Throws Error for any other address.
  void free(void* piece);

  struct Statistics {
    std::size_t total = 0;         ///< bytes of the range
    std::size_t used = 0;          ///< bytes in pieces, including rounding
    std::size_t touched_free = 0;  ///< free bytes that were not returned to the system
    std::size_t largest_free = 0;
    std::size_t returned = 0;  ///< returned to the system since the start
  };
  Statistics statistics() const;

 private:
  using Offset = std::size_t;
  static std::size_t size_class(std::size_t bytes);
  Offset take_pages(std::size_t bytes, std::size_t asked);
  void give_pages(Offset begin);
  void insert_free(Offset begin, std::size_t bytes);
  void erase_free(std::map<Offset, std::size_t>::iterator block);
  void touch(Offset begin, std::size_t bytes);
  std::size_t untouch(Offset begin, std::size_t bytes);
  void return_surplus();

  const MemoryRange range_;
  const std::size_t keep_;
  const pid_t owner_;
  mutable std::mutex mutex_;
  std::map<Offset, std::size_t> free_;                     ///< begin -> bytes; adjacent blocks are merged
  std::set<std::pair<std::size_t, Offset>> free_by_size_;  ///< the same blocks by size
  std::map<Offset, std::size_t> used_;                     ///< page-sized pieces, and slabs
  std::map<Offset, std::size_t> slabs_;                    ///< begin -> size class in bytes
  std::vector<std::vector<Offset>> small_free_;            ///< by size class
  std::set<Offset> small_used_;
  std::map<Offset, Offset> touched_;  ///< begin -> end of pages that may have been written
  std::size_t used_bytes_ = 0, touched_bytes_ = 0, touched_used_ = 0, returned_bytes_ = 0;
  bool can_return_ = true;
};

/// The arena of process_segment(), created by the first call. A forked child gets its own.
std::shared_ptr<Arena> process_arena();

}  // namespace tessera::wire::shm
