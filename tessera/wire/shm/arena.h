#pragma once
/// \file
/// Divides the arena of a segment (segment.h) among tensors. Pages that were touched once are given out again first:
/// a fresh page costs more to fault in than its share of a collective.

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

/// Memory of one MemoryRange. Thread-safe. Two kinds of pieces:
/// - up to 2 KB: from slabs of 64 KB, one free list per size class (powers of two from 64 bytes); slabs stay;
/// - larger ones: whole pages, best fit (lowest address among equals), neighbours merge when they are freed. When more
///   than `keep` bytes of touched pages are free, the largest free blocks of >= 1 MB go back to the system.
/// A forked child must not use the arena of its parent: its pieces are not the child's (free() does nothing there).
class Arena {
 public:
  static constexpr std::size_t smallest = 64, largest_small = 2048, slab = 64 << 10, returnable = 1 << 20;

  /// `range.data` is page-aligned, pages exist once they are written, and MADV_REMOVE gives them back (shared memory).
  Arena(MemoryRange range, std::size_t keep);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// 64-byte aligned, page-aligned from 2049 bytes; contents undefined. bytes >= 1. Throws Error with the numbers when
  /// no free block is large enough.
  void* allocate(std::size_t bytes);
  /// What allocate() gave. Throws Error for any other address.
  void free(void* piece);

  struct Statistics {
    std::size_t total = 0;         ///< bytes of the range
    std::size_t used = 0;          ///< in pieces, with their rounding
    std::size_t touched_free = 0;  ///< free, but still held from the system
    std::size_t largest_free = 0;
    std::size_t returned = 0;  ///< given back to the system, ever
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
  std::map<Offset, std::size_t> free_;                     ///< begin -> bytes; never two that touch
  std::set<std::pair<std::size_t, Offset>> free_by_size_;  ///< the same blocks
  std::map<Offset, std::size_t> used_;                     ///< pieces of pages, and slabs
  std::map<Offset, std::size_t> slabs_;                    ///< begin -> size of its pieces
  std::vector<std::vector<Offset>> small_free_;            ///< by size class
  std::set<Offset> small_used_;
  std::map<Offset, Offset> touched_;  ///< begin -> end of pages that may hold memory
  std::size_t used_bytes_ = 0, touched_bytes_ = 0, touched_used_ = 0, returned_bytes_ = 0;
  bool can_return_ = true;
};

/// The arena of process_segment(), made at the first call. A forked child gets one of its own.
std::shared_ptr<Arena> process_arena();

}  // namespace tessera::wire::shm
