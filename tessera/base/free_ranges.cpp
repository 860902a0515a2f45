#include <tessera/base/free_ranges.h>

#include <iterator>

namespace tessera {

void FreeRanges::give(std::int64_t begin, std::int64_t size) {
  if (size == 0) return;
  auto next = ranges_.lower_bound(begin);
  if (next != ranges_.end() && begin + size == next->first) {
    size += next->second;
    next = ranges_.erase(next);
  }
  if (next != ranges_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      before->second += size;
      return;
    }
  }
  ranges_.emplace(begin, size);
}

std::optional<std::int64_t> FreeRanges::take(std::int64_t size) {
  for (auto range = ranges_.begin(); range != ranges_.end(); ++range) {
    const auto [begin, room] = *range;
    if (room < size) continue;
    ranges_.erase(range);
    if (room > size) ranges_.emplace(begin + size, room - size);
    return begin;
  }
  return std::nullopt;
}

}  // namespace tessera
