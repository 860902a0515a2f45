#pragma once
/// \file
/// A table with a value for every code point, read with two look-ups: blocks of 256 code points, equal blocks stored
/// once.

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace tessera::text {

/// T: default-constructible, copyable, ordered by <. Immutable: any number of threads may read.
template <class T>
class CodePointTable {
 public:
  /// `flat`: a value for each of the 0x110000 code points.
  explicit CodePointTable(const std::vector<T>& flat) {
    std::map<Block, std::uint16_t> seen;
    std::vector<Block> distinct;
    for (std::size_t i = 0; i < block_of_.size(); ++i) {
      Block block;
      std::copy_n(flat.begin() + static_cast<std::ptrdiff_t>(i * 256), 256, block.begin());
      const auto [entry, is_new] = seen.emplace(block, static_cast<std::uint16_t>(distinct.size()));
      if (is_new) distinct.push_back(block);
      block_of_[i] = entry->second;
    }
    blocks_ = std::make_unique<Block[]>(distinct.size());
    std::copy(distinct.begin(), distinct.end(), blocks_.get());
  }

  /// code_point < 0x110000.
  const T& of(std::uint32_t code_point) const { return blocks_[block_of_[code_point >> 8]][code_point & 255]; }

 private:
  using Block = std::array<T, 256>;
  std::array<std::uint16_t, 0x1100> block_of_{};
  std::unique_ptr<Block[]> blocks_;
};

}  // namespace tessera::text
