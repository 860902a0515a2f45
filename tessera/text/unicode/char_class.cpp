#include <tessera/text/unicode/char_class.h>
#include <tessera/text/unicode/unicode_ranges.h>
#include <algorithm>
#include <vector>

namespace tessera::text {
namespace {

std::vector<CharClass> flat_classes() {
  std::vector<CharClass> flat(0x110000, CharClass::other);
  const auto paint = [&](const auto& ranges, CharClass what) {
    for (const CodeRange& range : ranges) std::fill(flat.begin() + range.first, flat.begin() + range.last + 1, what);
  };
  paint(letter_ranges, CharClass::letter);
  paint(number_ranges, CharClass::number);
  paint(space_ranges, CharClass::space);
  return flat;
}

}  // namespace

CharClasses::CharClasses() : table_(flat_classes()) {}

const CharClasses& CharClasses::get() {
  static const CharClasses table;
  return table;
}

}  // namespace tessera::text
