#include <tessera/text/unicode/character_data.h>
#include <tessera/text/unicode/code_set.h>

#include <algorithm>
#include <map>

namespace tessera::text {

CodeSet sorted_union(CodeSet ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const CodeRange& a, const CodeRange& b) { return a.first < b.first; });
  CodeSet out;
  for (const CodeRange& range : ranges) {
    if (!out.empty() && range.first <= out.back().last + 1) {
      out.back().last = std::max(out.back().last, range.last);
    } else {
      out.push_back(range);
    }
  }
  return out;
}

CodeSet complement(const CodeSet& set) {
  CodeSet out;
  std::uint32_t next = 0;
  for (const CodeRange& range : set) {
    if (next < range.first) out.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next < code_points) out.push_back({next, code_points - 1});
  return out;
}

bool contains(const CodeSet& set, std::uint32_t code_point) {
  const auto after = std::upper_bound(set.begin(), set.end(), code_point,
                                      [](std::uint32_t value, const CodeRange& range) { return value < range.first; });
  return after != set.begin() && code_point <= std::prev(after)->last;
}

void append(CodeSet& set, const CodeSet& more) { set.insert(set.end(), more.begin(), more.end()); }

namespace {

std::map<std::string_view, CodeSet> all_properties() {
  std::map<std::string_view, CodeSet> all = {{"", character_set("space")}};
  for (const std::string_view name :
       {"L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "N", "Nd", "P", "S", "digit", "word", "combining"})
    all.emplace(name, character_set(name));
  return all;
}

}  // namespace

const CodeSet* find_property(std::string_view name) {
  static const std::map<std::string_view, CodeSet> all = all_properties();
  const auto found = all.find(name);
  return found == all.end() ? nullptr : &found->second;
}

}  // namespace tessera::text
