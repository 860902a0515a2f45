#pragma once
/// \file
/// Shuffling more than fits into memory.
///
/// Every item gets a 64-bit key from the seed and its number (splitmix64), and items are sorted by it; of equal keys
/// the earlier comes first. So the order depends on the seed and on how many items there are before an item, and not on
/// the memory, which only decides how much passes through files: what exceeds it is divided into 64 files by the next 6
/// bits of the keys, and these are sorted one after another in the same way.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::corpus {

struct ShuffleOptions {
  std::uint64_t seed = 0;
  std::uint64_t memory = std::uint64_t{1} << 28;  ///< bytes, about; one item always fits
  std::string folder;                             ///< for files without names: as much as the items take
};

/// Takes items until there are none and gives each to `write` once. Throws what these throw, and Error for the files.
void shuffle(const std::function<std::optional<std::string>()>& next,
             const std::function<void(std::string_view)>& write, const ShuffleOptions& options);

/// The key of an item.
std::uint64_t shuffle_key(std::uint64_t seed, std::uint64_t number);

}  // namespace tessera::corpus
