#include <tessera/text/jinja/characters.h>

#include <algorithm>
#include <span>

#include <tessera/base/utf8.h>
#include <tessera/text/jinja/character_tables.h>
#include <tessera/text/unicode/utf8.h>

namespace tessera::text::jinja {
namespace {

bool is_space(std::uint32_t code) {
  if (code < 0x80) return code == ' ' || (code >= '\t' && code <= '\r') || (code >= 0x1C && code <= 0x1F);
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
         code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

/// The last entry that begins at or before `code`, or nullptr.
template <class Entry, class Begin>
const Entry* entry_of(std::span<const Entry> table, std::uint32_t code, Begin begin) {
  const auto after = std::upper_bound(table.begin(), table.end(), code,
                                      [&](std::uint32_t c, const Entry& entry) { return c < begin(entry); });
  return after == table.begin() ? nullptr : &*(after - 1);
}

const char* find(std::span<const CaseText> texts, std::uint32_t code) {
  const CaseText* text = entry_of(texts, code, [](const CaseText& t) { return t.code; });
  return text != nullptr && text->code == code ? text->text : nullptr;
}

/// Runs may lie within each other's gaps, so that the neighbour before is looked at, too.
const CaseRun* find(std::span<const CaseRun> runs, std::uint32_t code) {
  const CaseRun* run = entry_of(runs, code, [](const CaseRun& r) { return r.first; });
  for (int back = 0; run != nullptr && back < 2; ++back) {
    if (code <= run->last && (code - run->first) % run->step == 0) return run;
    run = run == runs.data() ? nullptr : run - 1;
  }
  return nullptr;
}

bool append(std::string& out, std::uint32_t code, std::span<const CaseRun> runs, std::span<const CaseText> texts) {
  if (const char* text = find(texts, code)) {
    out += text;
    return true;
  }
  const CaseRun* run = find(runs, code);
  if (run == nullptr) return false;
  append_utf8(out, static_cast<std::uint32_t>(static_cast<std::int32_t>(code) + run->delta));
  return true;
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
  const CharacterRange* range =
      entry_of(std::span<const CharacterRange>(unprintable), code, [](const CharacterRange& r) { return r.first; });
  return range == nullptr || code > range->last;
}

void append_case(std::string& out, std::uint32_t code, Case wanted) {
  if (wanted == Case::title && append(out, code, title_runs, title_texts)) return;
  const bool changed =
      wanted == Case::lower ? append(out, code, lower_runs, lower_texts) : append(out, code, upper_runs, upper_texts);
  if (!changed) append_utf8(out, code);
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
