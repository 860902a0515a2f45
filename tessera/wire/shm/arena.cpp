#include <tessera/wire/shm/arena.h>

#include <tessera/base/error.h>
#include <tessera/base/log.h>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <iterator>

namespace tessera::wire::shm {
namespace {

// 4 KB; 16 or 64 KB on some ARM systems.
const std::size_t arena_page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));

std::size_t round_to(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

std::string megabytes(std::size_t bytes) {
  return concat(format_real(static_cast<double>(bytes) / (1 << 20), 4), " MB");
}

}  // namespace

Arena::Arena(MemoryRange range, std::size_t keep)
    : range_(range), keep_(keep), owner_(getpid()), small_free_(size_class(largest_small) + 1) {
  TESSERA_CHECK(reinterpret_cast<std::uintptr_t>(range.data) % arena_page == 0,
                "an arena must start at a page boundary");
  if (const std::size_t bytes = range.bytes / arena_page * arena_page; bytes > 0) insert_free(0, bytes);
}

Arena::~Arena() = default;

/// 0 for <= 64 bytes, 1 for <= 128, ...
std::size_t Arena::size_class(std::size_t bytes) {
  return static_cast<std::size_t>(std::countr_zero(std::bit_ceil(std::max(bytes, smallest)))) -
         static_cast<std::size_t>(std::countr_zero(smallest));
}

void* Arena::allocate(std::size_t bytes) {
  TESSERA_CHECK(bytes > 0, "cannot allocate 0 bytes from an arena");
  TESSERA_CHECK(getpid() == owner_, "a forked child must not use its parent's arena");
  const std::lock_guard lock(mutex_);
  if (bytes > largest_small) return range_.data + take_pages(round_to(bytes, arena_page), bytes);

  const std::size_t index = size_class(bytes), piece = smallest << index;
  std::vector<Offset>& list = small_free_[index];
  if (list.empty()) {
    const Offset begin = take_pages(slab, bytes);
    slabs_.emplace(begin, piece);
    used_bytes_ -= slab;  // its pieces are counted individually
    for (std::size_t at = slab; at > 0; at -= piece) list.push_back(begin + at - piece);
  }
  const Offset begin = list.back();
  small_used_.insert(begin);
  list.pop_back();
  used_bytes_ += piece;
  return range_.data + begin;
}

void Arena::free(void* piece) {
  if (getpid() != owner_) return;  // a forked child drops tensors of its parent's arena
  const std::lock_guard lock(mutex_);
  const auto begin = static_cast<Offset>(static_cast<std::byte*>(piece) - range_.data);
  if (const auto small = small_used_.find(begin); small != small_used_.end()) {
    small_used_.erase(small);
    const std::size_t bytes = std::prev(slabs_.upper_bound(begin))->second;
    small_free_[size_class(bytes)].push_back(begin);
    used_bytes_ -= bytes;
    return;
  }
  TESSERA_CHECK(used_.contains(begin) && !slabs_.contains(begin), "the arena of ", megabytes(range_.bytes),
                " has no piece at offset ", begin, "; it was already freed, or never allocated");
  give_pages(begin);
}

Arena::Offset Arena::take_pages(std::size_t bytes, std::size_t asked) {
  const auto found = free_by_size_.lower_bound({bytes, 0});
  if (found == free_by_size_.end()) {
    const std::size_t largest = free_by_size_.empty() ? 0 : free_by_size_.rbegin()->first;
    throw Error(concat("shared memory is full: a tensor of ", asked, " bytes needs ", megabytes(bytes),
                       " in one piece, the largest free block has ", megabytes(largest), " (", megabytes(used_bytes_),
                       " of ", megabytes(range_.bytes),
                       " are used); the region is as large as the machine's memory, so the model needs more memory "
                       "than the machine has, or tensors of empty_shared are kept too long"));
  }
  const auto [size, begin] = *found;
  erase_free(free_.find(begin));
  if (size > bytes) insert_free(begin + bytes, size - bytes);
  used_.emplace(begin, bytes);
  used_bytes_ += bytes;
  touch(begin, bytes);
  touched_used_ += bytes;
  return begin;
}

void Arena::give_pages(Offset begin) {
  const auto piece = used_.find(begin);
  std::size_t bytes = piece->second;
  used_.erase(piece);
  used_bytes_ -= bytes;
  touched_used_ -= bytes;
  auto after = free_.lower_bound(begin);
  if (after != free_.end() && begin + bytes == after->first) {
    bytes += after->second;
    const auto next = std::next(after);
    erase_free(after);
    after = next;
  }
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == begin) {
      begin = before->first;
      bytes += before->second;
      erase_free(before);
    }
  }
  insert_free(begin, bytes);
  return_surplus();
}

void Arena::insert_free(Offset begin, std::size_t bytes) {
  free_.emplace(begin, bytes);
  free_by_size_.emplace(bytes, begin);
}

void Arena::erase_free(std::map<Offset, std::size_t>::iterator block) {
  free_by_size_.erase({block->second, block->first});
  free_.erase(block);
}

/// Every allocated piece is assumed to be written.
void Arena::touch(Offset begin, std::size_t bytes) {
  Offset end = begin + bytes;
  auto it = touched_.upper_bound(begin);
  if (it != touched_.begin() && std::prev(it)->second >= begin) --it;
  while (it != touched_.end() && it->first <= end) {
    begin = std::min(begin, it->first);
    end = std::max(end, it->second);
    touched_bytes_ -= it->second - it->first;
    it = touched_.erase(it);
  }
  touched_.emplace(begin, end);
  touched_bytes_ += end - begin;
}

/// Removes the range from the touched ranges; returns how many of its bytes were touched.
std::size_t Arena::untouch(Offset begin, std::size_t bytes) {
  const Offset end = begin + bytes;
  std::size_t removed = 0;
  auto it = touched_.upper_bound(begin);
  if (it != touched_.begin() && std::prev(it)->second > begin) --it;
  while (it != touched_.end() && it->first < end) {
    const auto [from, to] = *it;
    it = touched_.erase(it);
    if (from < begin) touched_.emplace(from, begin);
    if (to > end) touched_.emplace(end, to);
    removed += std::min(to, end) - std::max(from, begin);
  }
  touched_bytes_ -= removed;
  return removed;
}

void Arena::return_surplus() {
  // Largest first. Small blocks are not worth the system call.
  std::vector<std::pair<std::size_t, Offset>> blocks;
  if (!can_return_ || touched_bytes_ - touched_used_ <= keep_) return;
  for (auto it = free_by_size_.rbegin(); it != free_by_size_.rend() && it->first >= returnable; ++it)
    blocks.push_back(*it);
  for (const auto& [bytes, begin] : blocks) {
    // Only touched pages: the untouched end of the range may span terabytes.
    for (auto it = touched_.upper_bound(begin); touched_bytes_ - touched_used_ > keep_;) {
      if (it != touched_.begin() && std::prev(it)->second > begin) --it;
      if (it == touched_.end() || it->first >= begin + bytes) break;
      const Offset from = std::max(begin, it->first), to = std::min(begin + bytes, it->second);
      if (madvise(range_.data + from, to - from, MADV_REMOVE) != 0) {
        can_return_ = false;
        log::warning("shared memory: free pages cannot be returned to the system (MADV_REMOVE: ", std::strerror(errno),
                     "); they are kept for later tensors");
        return;
      }
      returned_bytes_ += untouch(from, to - from);
      it = touched_.upper_bound(to);
    }
  }
}

Arena::Statistics Arena::statistics() const {
  const std::lock_guard lock(mutex_);
  return {range_.bytes, used_bytes_, touched_bytes_ - touched_used_,
          free_by_size_.empty() ? 0 : free_by_size_.rbegin()->first, returned_bytes_};
}

std::shared_ptr<Arena> process_arena() {
  constexpr std::size_t keep = std::size_t{512} << 20;  // a few buckets, so that each step reuses freed memory
  struct Process {
    std::mutex mutex;
    pid_t pid = -1;
    std::shared_ptr<Arena> arena;
  };
  static Process& process = *new Process;  // tensors may outlive main()
  const std::lock_guard lock(process.mutex);
  if (process.pid != getpid()) {
    process.arena = std::make_shared<Arena>(process_segment().arena(), keep);
    process.pid = getpid();
  }
  return process.arena;
}

}  // namespace tessera::wire::shm
