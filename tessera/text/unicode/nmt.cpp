#include <tessera/text/unicode/nmt.h>

#include <tessera/base/utf8.h>

namespace tessera::text {
namespace {

// Both sets follow SentencePiece's normalization rule "nmt_nfkc".
bool vanishes(std::uint32_t c) {
  return (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
}
bool becomes_blank(std::uint32_t c) {
  return c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) || c == 0x2028 ||
         c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
}

}  // namespace

std::string_view to_nmt(std::string_view text, std::string& storage) {
  std::string out;
  bool changed = false;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    if (vanishes(c.value)) {
      changed = true;
    } else if (becomes_blank(c.value)) {
      changed = true;
      out += ' ';
    } else {
      out.append(text, at, c.size);
    }
    at += c.size;
  }
  if (!changed) return text;
  return storage = std::move(out);
}

}  // namespace tessera::text
