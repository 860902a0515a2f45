#include <tessera/text/unicode/utf8.h>

namespace tessera::text {

namespace {

/// Bytes of the well-formed code point at the start of `text`; 0 if it is ill-formed, in which case `bad` is the length
/// of the maximal prefix that could begin a well-formed sequence (at least 1).
std::size_t well_formed_prefix(std::string_view text, std::size_t& bad) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  bad = 1;
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  const std::size_t size = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  // The second byte's range excludes overlong forms, surrogates and values beyond U+10FFFF.
  const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  for (std::size_t i = 1; i < size; ++i) {
    if (i >= text.size()) return 0;
    const unsigned next = byte(i);
    if (i == 1 ? next < low || next > high : next < 0x80 || next > 0xBF) return 0;
    bad = i + 1;
  }
  return size;
}

}  // namespace

std::string replace_ill_formed(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 16);
  while (!text.empty()) {
    std::size_t bad = 0;
    std::size_t size = well_formed_prefix(text, bad);
    if (size > 0) {
      out.append(text.substr(0, size));
    } else {
      append_utf8(out, 0xFFFD);
      size = bad;
    }
    text.remove_prefix(size);
  }
  return out;
}

}  // namespace tessera::text
