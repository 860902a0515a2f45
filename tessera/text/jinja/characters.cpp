#include <tessera/text/jinja/characters.h>

#include <tessera/base/utf8.h>
#include <tessera/text/unicode/character_data.h>
#include <tessera/text/unicode/utf8.h>

namespace tessera::text::jinja {
namespace {

bool is_space(std::uint32_t code) {
  if (code < 0x80) return code == ' ' || (code >= '\t' && code <= '\r') || (code >= 0x1C && code <= 0x1F);
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
         code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

const CharacterMap& cases(Case wanted) {
  static const CharacterMap lower = character_map("lower"), upper = character_map("upper"),
                            title = character_map("title");
  return wanted == Case::lower ? lower : wanted == Case::upper ? upper : title;
}

}  // namespace

std::size_t character_size(std::string_view text, std::size_t at) {
  return at < text.size() ? code_point_at(text, at).size : 0;
}

std::size_t space_at(std::string_view text, std::size_t at) {
  if (at >= text.size()) return 0;
  const CodePoint point = code_point_at(text, at);
  return is_space(point.value) ? point.size : 0;
}

std::size_t size_before(std::string_view text, std::size_t end) {
  std::size_t size = 0;
  while (size < end) {
    ++size;
    if ((static_cast<unsigned char>(text[end - size]) & 0xC0) != 0x80) break;
  }
  return size;
}

std::string_view strip_left(std::string_view text) {
  while (const std::size_t size = space_at(text, 0)) text.remove_prefix(size);
  return text;
}

std::string_view strip_right(std::string_view text) {
  while (const std::size_t size = size_before(text, text.size())) {
    if (space_at(text, text.size() - size) == 0) break;
    text.remove_suffix(size);
  }
  return text;
}

bool is_printable(std::uint32_t code) {
  static const CodeSet unprintable = character_set("unprintable");
  return !contains(unprintable, code);
}

void append_case(std::string& out, std::uint32_t code, Case wanted) {
  const CharacterMap& changed = cases(wanted);
  const auto found = changed.find(code);
  if (found == changed.end()) return append_utf8(out, code);
  for (const char32_t c : found->second) append_utf8(out, c);
}

std::string to_case(std::string_view text, Case wanted) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    append_case(out, point.value, wanted);
    at += point.size;
  }
  return out;
}

std::string capitalized(std::string_view text) {
  std::string out;
  if (text.empty()) return out;
  const CodePoint first = code_point_at(text, 0);
  append_case(out, first.value, Case::title);
  return out + to_case(text.substr(first.size), Case::lower);
}

}  // namespace tessera::text::jinja
