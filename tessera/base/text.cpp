#include <tessera/base/text.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace tessera {

std::string join(std::span<const std::string> parts, std::string_view separator) {
  std::string out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += separator;
    out += parts[i];
  }
  return out;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (;;) {
    const std::size_t end = text.find(separator, begin);
    parts.emplace_back(text.substr(begin, end == std::string_view::npos ? end : end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

std::string trim(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n\f\v";
  const std::size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(blanks) - begin + 1));
}

std::string to_lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

namespace {

// Optimal string alignment: insertions, deletions, substitutions and swaps of neighbours. Returns the distance if it is
// below `limit`, otherwise a value >= `limit`. Only cells near the diagonal can be below it (Ukkonen 1985), and most
// names in a table are far apart.
std::size_t edit_distance(std::string_view a, std::string_view b, std::size_t limit) {
  if (std::max(a.size(), b.size()) - std::min(a.size(), b.size()) >= limit) return limit;  // that many insertions
  std::vector<std::size_t> before_last(b.size() + 1, limit), last(b.size() + 1, limit), row(b.size() + 1, limit);
  for (std::size_t j = 0; j <= b.size() && j < limit; ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    const std::size_t first = i < limit ? 1 : i - limit + 1, end = std::min(b.size(), i + limit - 1);
    row[first - 1] = first == 1 ? std::min(i, limit) : limit;
    std::size_t least = row[first - 1];
    for (std::size_t j = first; j <= end; ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      least = std::min(least, row[j]);
    }
    if (end < b.size()) row[end + 1] = limit;  // read by the next row
    if (least >= limit && i + 1 < a.size()) {
      // a swap reaches back two rows: give up if the next row cannot start from the previous one either
      const auto begin = last.begin() + static_cast<std::ptrdiff_t>(first - 1);
      const auto stop = last.begin() + static_cast<std::ptrdiff_t>(end + 1);
      if (*std::min_element(begin, stop) >= limit) return limit;
    }
    before_last.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

}  // namespace

std::optional<std::string> nearest(std::string_view name, std::span<const std::string> candidates) {
  std::optional<std::string> best;
  std::size_t best_distance = std::max<std::size_t>(1, name.size() / 3) + 1;  // farther is not a typo
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(name, candidate, best_distance);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string format_bytes(std::uint64_t bytes) {
  static constexpr std::array<const char*, 6> units = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return text;
}

std::string format_count(double count) {
  static constexpr std::array<const char*, 5> units = {"", " k", " M", " G", " T"};
  std::size_t unit = 0;
  while (std::abs(count) >= 1000 && unit + 1 < units.size()) {
    count /= 1000;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.4g%s" : "%.1f%s", count, units[unit]);
  return text;
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const auto total = static_cast<long long>(seconds + 0.5);
  char text[32];
  if (total >= 3600) {
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", total / 3600, total / 60 % 60, total % 60);
  } else {
    std::snprintf(text, sizeof text, "%lld:%02lld", total / 60, total % 60);
  }
  return text;
}

std::string format_real(double value, int digits) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char text[64];
  const auto shortest = std::to_chars(text, text + sizeof text, value);
  int significant = 0;
  for (const char* c = text; c != shortest.ptr && *c != 'e'; ++c)
    if (*c >= '0' && *c <= '9' && (significant > 0 || *c != '0')) ++significant;
  if (significant <= digits) return std::string(text, shortest.ptr);
  const auto rounded = std::to_chars(text, text + sizeof text, value, std::chars_format::general, digits);
  return std::string(text, rounded.ptr);
}

std::optional<std::int64_t> parse_int(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

std::optional<double> parse_real(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

bool is_utf8(std::string_view text) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  const auto* end = p + text.size();
  while (p < end) {
    if (*p < 0x80) {
      ++p;
      continue;
    }
    int more;
    std::uint32_t code;
    if ((*p & 0xE0) == 0xC0) {
      more = 1;
      code = *p & 0x1F;
    } else if ((*p & 0xF0) == 0xE0) {
      more = 2;
      code = *p & 0x0F;
    } else if ((*p & 0xF8) == 0xF0) {
      more = 3;
      code = *p & 0x07;
    } else
      return false;
    if (end - p <= more) return false;
    for (int i = 1; i <= more; ++i) {
      if ((p[i] & 0xC0) != 0x80) return false;
      code = (code << 6) | (p[i] & 0x3F);
    }
    static constexpr std::uint32_t smallest[] = {0, 0x80, 0x800, 0x10000};
    if (code < smallest[more] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return false;
    p += more + 1;
  }
  return true;
}

}  // namespace tessera
