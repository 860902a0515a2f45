#include <tessera/text/unicode/character_data.h>
#include <tessera/text/unicode/script.h>

#include <algorithm>

namespace tessera::text {

std::uint8_t script_class(std::uint32_t code_point) {
  static const std::vector<ClassRange> ranges = character_classes("script");
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), code_point,
                                      [](std::uint32_t value, const ClassRange& range) { return value < range.first; });
  if (after == ranges.begin() || std::prev(after)->last < code_point) return script_any;
  return std::prev(after)->number;
}

}  // namespace tessera::text
