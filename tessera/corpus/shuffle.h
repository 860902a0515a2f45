#pragma once
/// \file
/// External shuffling, for data that does not fit in memory.
///
/// Every item gets a 64-bit key from the seed and its number (splitmix64), and items are sorted by key; equal keys keep
/// their order. The order therefore depends only on the seed and the items' numbers. The memory limit only decides how
/// much is written to files: items beyond it are divided into 64 files by the next 6 bits of their keys, and these
/// files are sorted one after another in the same way.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::corpus {

struct ShuffleOptions {
  std::uint64_t seed = 0;
  std::uint64_t memory = std::uint64_t{1} << 28;  ///< approximate bytes; a single item is always allowed
  std::string folder;                             ///< folder for unnamed files, which need as much space as the items
};

/// Takes items until `next` returns none, and passes each to `write` once. Propagates exceptions of both, and throws
/// Error for problems with the files.
void shuffle(const std::function<std::optional<std::string>()>& next,
             const std::function<void(std::string_view)>& write, const ShuffleOptions& options);

/// The key of an item.
std::uint64_t shuffle_key(std::uint64_t seed, std::uint64_t number);

}  // namespace tessera::corpus
