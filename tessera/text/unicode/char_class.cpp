#include <tessera/text/unicode/char_class.h>
#include <tessera/text/unicode/code_set.h>

#include <algorithm>
#include <vector>

namespace tessera::text {
namespace {

std::vector<CharClass> flat_classes() {
  std::vector<CharClass> flat(code_points, CharClass::other);
  const auto paint = [&](std::string_view property, CharClass what) {
    for (const CodeRange& range : *find_property(property))
      std::fill(flat.begin() + range.first, flat.begin() + range.last + 1, what);
  };
  paint("L", CharClass::letter);
  paint("N", CharClass::number);
  paint("", CharClass::space);
  return flat;
}

}  // namespace

CharClasses::CharClasses() : table_(flat_classes()) {}

const CharClasses& CharClasses::get() {
  static const CharClasses table;
  return table;
}

}  // namespace tessera::text
