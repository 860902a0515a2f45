#pragma once
/// \file
/// The free parts of a linear space (a file, a heap): ranges that are allocated first fit and coalesced when freed.

#include <cstdint>
#include <map>
#include <optional>

namespace tessera {

/// Offsets and sizes in any one unit of the caller's choice, >= 0. Not thread-safe.
class FreeRanges {
 public:
  /// Frees [begin, begin + size), which must not overlap a free range. A `size` of 0 has no effect.
  void give(std::int64_t begin, std::int64_t size);
  /// Allocates `size` > 0 units from the lowest range that is long enough and returns their offset; nullopt if there is
  /// no such range.
  std::optional<std::int64_t> take(std::int64_t size);
  /// The free ranges, begin -> size; adjacent ones are always merged.
  const std::map<std::int64_t, std::int64_t>& ranges() const { return ranges_; }

 private:
  std::map<std::int64_t, std::int64_t> ranges_;
};

}  // namespace tessera
