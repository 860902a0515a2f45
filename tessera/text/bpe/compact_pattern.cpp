#include <tessera/text/bpe/compact_pattern.h>

#include <tessera/text/unicode/utf8.h>

#include <algorithm>
#include <map>

namespace tessera::text {

namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// Parses a pattern into sets and the syntax between them, which is kept verbatim.
class Parser {
 public:
  explicit Parser(std::string_view pattern) : pattern_(pattern) {}

  /// Returns false for unsupported patterns; see compact().
  bool run() {
    while (at_ < pattern_.size()) {
      if (!step()) return false;
    }
    return true;
  }

  /// Syntax before each set and after the last one: one element more than `sets`.
  std::vector<std::string> syntax{1};
  std::vector<CodeSet> sets;

 private:
  char peek(std::size_t ahead = 0) const { return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0'; }

  void put(CodeSet set) {
    sets.push_back(sorted_union(std::move(set)));
    syntax.emplace_back();
  }

  bool step() {
    const char c = peek();
    if (c == '[') return !caseless_.back() && bracket();
    if (c == '\\') {
      CodeSet set;
      if (class_escape(set)) return put(std::move(set)), true;
      const std::optional<std::uint32_t> escaped = character();
      if (!escaped || *escaped >= 0x80 || is_letter(static_cast<char>(*escaped))) return false;
      return put({{*escaped, *escaped}}), true;
    }
    if (c == '(') return group();
    if (c == ')') {
      if (caseless_.size() == 1) return false;
      caseless_.pop_back();
    } else if (static_cast<unsigned char>(c) >= 0x80) {
      if (caseless_.back()) return false;
      const auto value = character();
      return put({{*value, *value}}), true;
    } else if (is_letter(c) && caseless_.back()) {
      return put(both_cases(c)), ++at_, true;
    }
    syntax.back() += c;
    ++at_;
    return true;
  }

  /// Case folding maps the long s and the Kelvin sign to ASCII letters.
  static CodeSet both_cases(char c) {
    const auto lower = static_cast<std::uint32_t>(c | 0x20), upper = lower - 0x20;
    CodeSet set = {{lower, lower}, {upper, upper}};
    if (lower == 's') set.push_back({0x17F, 0x17F});
    if (lower == 'k') set.push_back({0x212A, 0x212A});
    return set;
  }

  bool group() {
    bool caseless = caseless_.back();
    std::string opening = "(";
    if (peek(1) == '?') {
      const std::string_view rest = pattern_.substr(at_);
      if (rest.starts_with("(?i:")) {
        caseless = true;
        opening = "(?:";
        ++at_;
      } else if (rest.starts_with("(?:") || rest.starts_with("(?=") || rest.starts_with("(?!") ||
                 rest.starts_with("(?>")) {
        opening = rest.substr(0, 3);
      } else {
        return false;
      }
    } else if (peek(1) == '*') {
      return false;
    }
    at_ += opening.size();
    caseless_.push_back(caseless);
    syntax.back() += opening;
    return true;
  }

  /// \s \S \p{..} \P{..}: adds the class's ranges.
  bool class_escape(CodeSet& set) {
    const char c = peek(1);
    if (c == 's' || c == 'S') {
      at_ += 2;
      append(set, c == 's' ? *find_property("") : complement(*find_property("")));
      return true;
    }
    if (c != 'p' && c != 'P') return false;
    const std::size_t end = pattern_.find('}', at_);
    if (peek(2) != '{' || end == std::string_view::npos || end < at_ + 4) return false;
    const CodeSet* ranges = find_property(pattern_.substr(at_ + 3, end - at_ - 3));
    if (ranges == nullptr) return false;
    at_ = end + 1;
    append(set, c == 'p' ? *ranges : complement(*ranges));
    return true;
  }

  /// Parses one character, escaped or not.
  std::optional<std::uint32_t> character() {
    if (peek() == '\\') {
      static constexpr std::string_view names = "rntfv", values = "\r\n\t\f\v";
      const char c = peek(1);
      if (const std::size_t i = names.find(c); c != '\0' && i != std::string_view::npos) {
        at_ += 2;
        return static_cast<unsigned char>(values[i]);
      }
      if (c <= ' ' || static_cast<unsigned char>(c) >= 0x7F || is_letter(c) || (c >= '0' && c <= '9')) return {};
      at_ += 2;
      return static_cast<unsigned char>(c);
    }
    const CodePoint c = code_point_at(pattern_, at_);
    at_ += c.size;
    return c.value;
  }

  bool bracket() {
    ++at_;
    const bool negated = peek() == '^';
    at_ += negated;
    if (peek() == ']') return false;
    CodeSet set;
    while (peek() != ']') {
      if (at_ >= pattern_.size() || peek() == '[') return false;
      if (class_escape(set)) {
        if (peek() == '-' && peek(1) != ']') return false;
        continue;
      }
      const auto first = character();
      if (!first) return false;
      auto last = first;
      if (peek() == '-' && peek(1) != ']') {
        ++at_;
        if (peek() == '[') return false;
        last = character();
        if (!last || *last < *first) return false;
      }
      set.push_back({*first, *last});
    }
    ++at_;
    set = sorted_union(std::move(set));
    put(negated ? complement(set) : set);
    return true;
  }

  std::string_view pattern_;
  std::size_t at_ = 0;
  std::vector<bool> caseless_{false};
};

std::string hex(std::uint32_t byte) {
  constexpr std::string_view digits = "0123456789abcdef";
  return {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
}

/// The byte class [...] for a set; empty if the set contains no bytes.
std::string bytes_of(const CodeSet& set, const std::vector<bool>& high_bytes) {
  std::string out;
  for (std::uint32_t first = 0; first < 256; ++first) {
    const auto has = [&](std::uint32_t b) { return b < 0x80 ? contains(set, b) : b < 256 && high_bytes[b - 0x80]; };
    if (!has(first)) continue;
    std::uint32_t last = first;
    while (has(last + 1)) ++last;
    out += first == last ? hex(first) : hex(first) + "-" + hex(last);
    first = last;
  }
  return out.empty() ? out : "[" + out + "]";
}

}  // namespace

CompactAlphabet::CompactAlphabet(const std::vector<std::pair<std::uint32_t, std::uint8_t>>& intervals) {
  std::map<Block, std::uint16_t> seen;
  std::size_t interval = 0;
  for (std::uint32_t i = 0; i < block_of_.size(); ++i) {
    Block block{};
    for (std::uint32_t c = i * 256; c < (i + 1) * 256; ++c) {
      while (interval + 1 < intervals.size() && intervals[interval + 1].first <= c) ++interval;
      block[c & 255] = c < 0x80 ? static_cast<std::uint8_t>(c) : intervals[interval].second;
    }
    const auto [entry, is_new] = seen.emplace(block, static_cast<std::uint16_t>(blocks_.size()));
    if (is_new) blocks_.push_back(block);
    block_of_[i] = entry->second;
  }
}

void CompactAlphabet::translate(std::string_view text, std::string& out) const {
  out.resize(text.size());
  std::size_t size = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      out[size++] = text[at++];
      continue;
    }
    const CodePoint c = code_point_at(text, at);
    out[size++] = static_cast<char>(of(c.value));
    at += c.size;
  }
  out.resize(size);
}

std::optional<CompactPattern> compact(std::string_view pattern) {
  Parser parsed(pattern);
  if (!parsed.run() || parsed.sets.size() > 64) return std::nullopt;

  // Between two consecutive range ends, all code points belong to the same sets.
  std::vector<std::uint32_t> cuts = {0x80};
  for (const CodeSet& set : parsed.sets) {
    for (const CodeRange& range : set) {
      if (range.first > 0x80) cuts.push_back(range.first);
      if (range.last >= 0x80 && range.last + 1 < code_points) cuts.push_back(range.last + 1);
    }
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());

  std::map<std::uint64_t, std::uint8_t> byte_of;  // keyed by the sets that an interval belongs to: bit i = set i
  std::vector<std::pair<std::uint32_t, std::uint8_t>> intervals;
  std::vector<std::vector<bool>> high_bytes(parsed.sets.size(), std::vector<bool>(128));
  for (const std::uint32_t cut : cuts) {
    std::uint64_t membership = 0;
    for (std::size_t i = 0; i < parsed.sets.size(); ++i) {
      if (contains(parsed.sets[i], cut)) membership |= std::uint64_t{1} << i;
    }
    const auto [entry, is_new] = byte_of.emplace(membership, static_cast<std::uint8_t>(0x80 + byte_of.size()));
    if (byte_of.size() > 127) return std::nullopt;
    intervals.emplace_back(cut, entry->second);
    for (std::size_t i = 0; is_new && i < parsed.sets.size(); ++i) {
      if ((membership >> i & 1) != 0) high_bytes[i][entry->second - 0x80] = true;
    }
  }

  std::string out = parsed.syntax[0];
  for (std::size_t i = 0; i < parsed.sets.size(); ++i) {
    const std::string bytes = bytes_of(parsed.sets[i], high_bytes[i]);
    if (bytes.empty()) return std::nullopt;
    out += bytes + parsed.syntax[i + 1];
  }
  return CompactPattern{std::move(out), CompactAlphabet(intervals)};
}

}  // namespace tessera::text
