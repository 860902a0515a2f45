#pragma once
/// \file
/// Which parts of a long space (a file, a heap) are free: ranges that are taken first fit and merge when they come
/// back.

#include <cstdint>
#include <map>
#include <optional>

namespace tessera {

/// Offsets and sizes in one unit of the caller's choice, >= 0. Not thread-safe.
class FreeRanges {
 public:
  /// [begin, begin + size) is free from now on; it must not overlap what is free already. size 0: nothing.
  void give(std::int64_t begin, std::int64_t size);
  /// The begin of `size` > 0 free units, the lowest that fit, which are free no longer; nothing when no range is long
  /// enough.
  std::optional<std::int64_t> take(std::int64_t size);
  /// The ranges: begin -> size; never two that touch.
  const std::map<std::int64_t, std::int64_t>& ranges() const { return ranges_; }

 private:
  std::map<std::int64_t, std::int64_t> ranges_;
};

}  // namespace tessera
