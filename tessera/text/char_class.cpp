#include <tessera/text/char_class.h>
#include <tessera/text/unicode_ranges.h>
#include <algorithm>
#include <map>
#include <vector>

namespace tessera::text {

CharClasses::CharClasses() {
  std::vector<CharClass> flat(0x110000, CharClass::other);
  const auto paint = [&](const auto& ranges, CharClass what) {
    for (const CodeRange& range : ranges) std::fill(flat.begin() + range.first, flat.begin() + range.last + 1, what);
  };
  paint(letter_ranges, CharClass::letter);
  paint(number_ranges, CharClass::number);
  paint(space_ranges, CharClass::space);

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

const CharClasses& CharClasses::get() {
  static const CharClasses table;
  return table;
}

}  // namespace tessera::text
