#include <tessera/text/jinja/text_functions.h>

#include <algorithm>
#include <limits>

#include <tessera/base/text.h>
#include <tessera/text/jinja/characters.h>
#include <tessera/text/unicode/code_set.h>
#include <tessera/text/unicode/utf8.h>

namespace tessera::text::jinja {
namespace {

/// Bytes of the line break at text[at] (str.splitlines), or 0.
std::size_t line_break_at(std::string_view text, std::size_t at) {
  const CodePoint point = code_point_at(text, at);
  switch (point.value) {
    case '\r':
      return at + 1 < text.size() && text[at + 1] == '\n' ? 2 : 1;
    case '\n':
    case '\v':
    case '\f':
    case 0x1C:
    case 0x1D:
    case 0x1E:
    case 0x85:
    case 0x2028:
    case 0x2029:
      return point.size;
    default:
      return 0;
  }
}

std::vector<std::string_view> split_at_spaces(std::string_view text, std::int64_t most) {
  std::vector<std::string_view> parts;
  text = strip_left(text);
  while (!text.empty()) {
    if (most >= 0 && static_cast<std::int64_t>(parts.size()) == most) {
      parts.push_back(strip_right(text));
      break;
    }
    std::size_t end = 0;
    while (end < text.size() && space_at(text, end) == 0) end += character_size(text, end);
    parts.push_back(text.substr(0, end));
    text = strip_left(text.substr(end));
  }
  return parts;
}

std::vector<std::string_view> split_at_spaces_from_right(std::string_view text, std::int64_t most) {
  std::vector<std::string_view> parts;
  text = strip_right(text);
  while (!text.empty()) {
    if (most >= 0 && static_cast<std::int64_t>(parts.size()) == most) {
      parts.push_back(strip_left(text));
      break;
    }
    std::size_t begin = text.size();
    while (const std::size_t size = size_before(text, begin)) {
      if (space_at(text, begin - size) != 0) break;
      begin -= size;
    }
    parts.push_back(text.substr(begin));
    text = strip_right(text.substr(0, begin));
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

bool is_letter(std::uint32_t code) {
  if (code < 0x80) return (code | 0x20) >= 'a' && (code | 0x20) <= 'z';
  static const CodeSet* const letters = find_property("L");
  return contains(*letters, code);
}

/// Removes single underscores between digits; nullopt for any other text.
std::optional<std::string> plain_digits(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_') {
      const bool between = i > 0 && i + 1 < text.size() && text[i - 1] != '_' && text[i + 1] != '_';
      if (!between) return std::nullopt;
      continue;
    }
    out += text[i];
  }
  return out.empty() ? std::nullopt : std::optional(out);
}

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char letter = static_cast<char>(c | 0x20);
  return letter >= 'a' && letter <= 'z' ? letter - 'a' + 10 : 99;
}

int base_of_prefix(std::string_view text) {
  if (text.size() < 2 || text[0] != '0') return 10;
  const char letter = static_cast<char>(text[1] | 0x20);
  return letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
}

}  // namespace

std::size_t character_count(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::vector<std::string_view> characters_of(std::string_view text) {
  std::vector<std::string_view> characters;
  characters.reserve(text.size());
  for (std::size_t at = 0; at < text.size(); at += characters.back().size())
    characters.push_back(text.substr(at, character_size(text, at)));
  return characters;
}

std::string_view character_at(std::string_view text, std::size_t place) {
  std::size_t at = 0;
  for (; place > 0; --place) at += character_size(text, at);
  return text.substr(at, character_size(text, at));
}

std::string_view strip(std::string_view text, std::optional<std::string_view> characters, Side side) {
  const auto strips = [&](std::string_view character) {
    return characters ? characters->find(character) != std::string_view::npos : space_at(character, 0) != 0;
  };
  if (side != Side::right)
    while (!text.empty() && strips(text.substr(0, character_size(text, 0))))
      text.remove_prefix(character_size(text, 0));
  if (side != Side::left)
    while (!text.empty() && strips(text.substr(text.size() - size_before(text, text.size()))))
      text.remove_suffix(size_before(text, text.size()));
  return text;
}

std::vector<std::string_view> split_text(std::string_view text, std::optional<std::string_view> separator,
                                         std::int64_t most, bool from_right) {
  if (!separator) return from_right ? split_at_spaces_from_right(text, most) : split_at_spaces(text, most);
  if (separator->empty()) fail("the separator for splitting is empty");
  std::vector<std::string_view> parts;
  const auto may_go_on = [&] { return most < 0 || static_cast<std::int64_t>(parts.size()) < most; };
  if (from_right) {
    for (std::size_t at; may_go_on() && (at = text.rfind(*separator)) != std::string_view::npos;) {
      parts.push_back(text.substr(at + separator->size()));
      text = text.substr(0, at);
    }
    parts.push_back(text);
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  for (std::size_t at; may_go_on() && (at = text.find(*separator)) != std::string_view::npos;) {
    parts.push_back(text.substr(0, at));
    text = text.substr(at + separator->size());
  }
  parts.push_back(text);
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = line_break_at(text, at);
    if (size == 0) {
      at += character_size(text, at);
      continue;
    }
    lines.push_back(text.substr(begin, at - begin + (keep_ends ? size : 0)));
    begin = at += size;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string replaced(Machine& machine, std::string_view text, std::string_view old, std::string_view with,
                     std::int64_t most) {
  machine.step(1 + text.size() / 64);
  std::string out;
  std::int64_t done = 0;
  std::size_t at = 0;
  const auto may_go_on = [&] { return most < 0 || done < most; };
  const auto put = [&](std::string_view piece) {
    machine.charge(piece.size());
    out += piece;
  };
  if (old.empty()) {  // insert before every character and at the end
    while (may_go_on() && at <= text.size()) {
      put(with);
      ++done;
      if (at == text.size()) return out;
      const std::size_t size = character_size(text, at);
      put(text.substr(at, size));
      at += size;
    }
    put(text.substr(at));
    return out;
  }
  for (std::size_t found; may_go_on() && (found = text.find(old, at)) != std::string_view::npos; ++done) {
    put(text.substr(at, found - at));
    put(with);
    at = found + old.size();
  }
  put(text.substr(at));
  return out;
}

std::size_t count_of(std::string_view text, std::string_view what) {
  if (what.empty()) return character_count(text) + 1;
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string_view::npos; at += what.size()) ++count;
  return count;
}

std::string escaped(std::string_view text) {
  constexpr const char* names[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  std::string out;
  for (const char c : text) {
    const std::size_t special = std::string_view("&<>'\"").find(c);
    if (special == std::string_view::npos)
      out += c;
    else
      out += names[special];
  }
  return out;
}

std::string titled(std::string_view text) {
  std::string out;
  bool in_word = false;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    append_case(out, point.value, in_word ? Case::lower : Case::title);
    in_word = is_letter(point.value);
    at += point.size;
  }
  return out;
}

std::string aligned(Machine& machine, std::string_view text, std::int64_t width, std::string_view fill, Align align) {
  const auto missing = width - static_cast<std::int64_t>(character_count(text));
  if (missing <= 0) return std::string(text);
  machine.charge(static_cast<std::size_t>(missing), fill.size());
  const std::int64_t before = align == Align::right ? missing : 0;
  std::string out;
  for (std::int64_t i = 0; i < before; ++i) out += fill;
  out += text;
  for (std::int64_t i = before; i < missing; ++i) out += fill;
  return out;
}

std::optional<std::int64_t> parse_python_integer(std::string_view text, int base) {
  text = strip_left(strip_right(text));
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const int prefixed = base_of_prefix(text);
  if (prefixed != 10 && (base == prefixed || base == 0)) {
    base = prefixed;
    text.remove_prefix(2);
    if (text.starts_with('_')) text.remove_prefix(1);
  } else if (base == 0) {
    base = 10;
    if (text.starts_with('0') && text.find_first_not_of("0_") != std::string_view::npos) return std::nullopt;
  }
  const auto digits = plain_digits(text);
  if (!digits) return std::nullopt;
  if (std::any_of(digits->begin(), digits->end(), [&](char c) { return digit(c) >= base; })) return std::nullopt;
  std::int64_t value = 0;
  for (const char c : *digits)
    if (__builtin_mul_overflow(value, base, &value) ||
        __builtin_add_overflow(value, negative ? -digit(c) : digit(c), &value))
      fail("the integer '", text, "' does not fit in 64 bits");
  return value;
}

std::optional<double> parse_python_real(std::string_view text) {
  text = strip_left(strip_right(text));
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.starts_with('-') || text.starts_with('+')) return std::nullopt;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool between = i > 0 && i + 1 < text.size() && digit(text[i - 1]) < 10 && digit(text[i + 1]) < 10;
    if (text[i] == '_' && !between) return std::nullopt;
  }
  std::string plain(text);
  std::erase(plain, '_');
  const std::string lower = to_lower(plain);
  double value = 0;
  if (lower == "inf" || lower == "infinity") {
    value = std::numeric_limits<double>::infinity();
  } else if (lower == "nan") {
    value = std::numeric_limits<double>::quiet_NaN();
  } else {
    if (plain.empty() || plain.find_first_not_of("0123456789.eE+-") != std::string::npos) return std::nullopt;
    const auto parsed = parse_real(plain);
    if (!parsed) return std::nullopt;
    value = *parsed;
  }
  return negative ? -value : value;
}

}  // namespace tessera::text::jinja
