#include <tessera/text/unicode/character_data.h>
#include <tessera/text/unicode/code_point_table.h>
#include <tessera/text/unicode/grapheme.h>
#include <tessera/text/unicode/utf8.h>

namespace tessera::text {
namespace {

enum class Border : std::uint8_t { none, extend, prepend, control };

const CodePointTable<Border>& borders() {
  static const CodePointTable<Border> table = [] {
    std::vector<Border> flat(code_points);
    const auto paint = [&](std::string_view set, Border border) {
      for (const CodeRange& range : character_set(set))
        for (std::uint32_t c = range.first; c <= range.last; ++c) flat[c] = border;
    };
    paint("extend", Border::extend);
    paint("prepend", Border::prepend);
    paint("control", Border::control);
    return CodePointTable<Border>(flat);
  }();
  return table;
}

}  // namespace

std::size_t grapheme_end(std::string_view text, std::size_t at) {
  const CodePointTable<Border>& table = borders();
  const CodePoint first = code_point_at(text, at);
  std::size_t end = at + first.size;
  Border last = table.of(first.value);
  if (first.value == '\r') return end < text.size() && text[end] == '\n' ? end + 1 : end;
  if (last == Border::control) return end;
  while (end < text.size()) {
    const CodePoint next = code_point_at(text, end);
    const Border border = table.of(next.value);
    if (border != Border::extend && (last != Border::prepend || border == Border::control)) break;
    end += next.size;
    last = border;
  }
  return end;
}

}  // namespace tessera::text
