#include <tessera/text/unicode/code_set.h>
#include <tessera/text/unicode/pipeline_tables.h>
#include <tessera/text/unicode/unicode_properties.h>

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

/// The members of some tables.
template <std::size_t... N>
CodeSet all_of(const std::array<CodeRun, N>&... tables) {
  CodeSet ranges;
  const auto add = [&](const CodeRun& run) {
    if (run.step == 1) return ranges.push_back({run.first, run.last});
    for (std::uint32_t c = run.first; c <= run.last; c += run.step) ranges.push_back({c, c});
  };
  (std::for_each(tables.begin(), tables.end(), add), ...);
  return sorted_union(std::move(ranges));
}

std::map<std::string_view, CodeSet> all_properties() {
  std::map<std::string_view, CodeSet> all = {{"", all_of(space_runs)},
                                             {"Lu", all_of(upper_case_runs)},
                                             {"Ll", all_of(lower_case_runs)},
                                             {"Lt", all_of(title_runs)},
                                             {"Lm", all_of(modifier_letter_runs)},
                                             {"Lo", all_of(other_letter_runs)},
                                             {"M", all_of(mark_runs)},
                                             {"N", all_of(decimal_runs, other_number_runs)},
                                             {"Nd", all_of(decimal_runs)},
                                             {"P", all_of(punctuation_runs)},
                                             {"S", all_of(symbol_runs)},
                                             {"digit", all_of(decimal_runs, other_number_runs, more_number_runs)}};
  all["L"] = all_of(upper_case_runs, lower_case_runs, title_runs, modifier_letter_runs, other_letter_runs);
  CodeSet words = all["L"];
  append(words, all_of(mark_runs, decimal_runs, more_word_runs));
  all["word"] = sorted_union(std::move(words));
  all["combining"] = CodeSet(combining_mark_ranges.begin(), combining_mark_ranges.end());
  return all;
}

}  // namespace

const CodeSet* find_property(std::string_view name) {
  static const std::map<std::string_view, CodeSet> all = all_properties();
  const auto found = all.find(name);
  return found == all.end() ? nullptr : &found->second;
}

}  // namespace tessera::text
