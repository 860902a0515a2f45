#include <tessera/text/unicode/character_data.h>
#include <tessera/text/wordpiece/bert_characters.h>

#include <algorithm>
#include <vector>

namespace tessera::text {
namespace {

constexpr std::uint32_t dotted_capital_i = 0x130, dot_above = 0x307;

/// Copies `text`, but calls change(properties, code point, bytes) to write the code points that have one of `flags` (if
/// `flags` is 0: all code points with a lower case).
template <class Change>
std::string_view rewrite(std::string_view text, std::string& storage, std::uint8_t flags, const Change& change) {
  const BertCharacters& characters = BertCharacters::get();
  bool changed = false;
  std::size_t copied = 0;  // everything before it is already in storage
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    const BertCharacters::Character& character = characters.of(c.value);
    if ((character.flags & flags) != 0 || (flags == 0 && character.lower != 0)) {
      if (!changed) storage.clear();
      changed = true;
      storage.append(text.substr(copied, at - copied));
      change(character, c.value, text.substr(at, c.size));
      copied = at + c.size;
    }
    at += c.size;
  }
  if (!changed) return text;
  storage.append(text.substr(copied));
  return storage;
}

std::vector<BertCharacters::Character> flat_characters() {
  using Flags = BertCharacters;
  std::vector<BertCharacters::Character> flat(0x110000);
  const auto paint = [&](std::string_view set, BertCharacters::Flag flag) {
    for (const CodeRange& range : character_set(set))
      for (std::uint32_t c = range.first; c <= range.last; ++c) flat[c].flags |= flag;
  };
  paint("bert_removed", Flags::removed);
  paint("bert_space", Flags::space);
  paint("bert_chinese", Flags::chinese);
  paint("bert_mark", Flags::mark);
  paint("bert_separator", Flags::separator);
  paint("bert_punctuation", Flags::punctuation);
  for (const auto& [c, lower] : character_map("bert_lower"))  // one character each, except for the dotted i
    flat[c].lower = static_cast<std::int32_t>(lower[0]) - static_cast<std::int32_t>(c);
  return flat;
}

}  // namespace

BertCharacters::BertCharacters() : table_(flat_characters()) {}

const BertCharacters& BertCharacters::get() {
  static const BertCharacters table;
  return table;
}

std::string_view clean_text(std::string_view text, std::string& storage) {
  return rewrite(text, storage, BertCharacters::removed | BertCharacters::space,
                 [&](const BertCharacters::Character& character, std::uint32_t, std::string_view) {
                   if (!(character.flags & BertCharacters::removed)) storage += ' ';
                 });
}

std::string_view space_chinese(std::string_view text, std::string& storage) {
  return rewrite(text, storage, BertCharacters::chinese,
                 [&](const BertCharacters::Character&, std::uint32_t, std::string_view bytes) {
                   storage += ' ';
                   storage += bytes;
                   storage += ' ';
                 });
}

std::string_view remove_marks(std::string_view text, std::string& storage) {
  return rewrite(text, storage, BertCharacters::mark,
                 [](const BertCharacters::Character&, std::uint32_t, std::string_view) {});
}

std::string_view to_lower_case(std::string_view text, std::string& storage) {
  return rewrite(text, storage, 0,
                 [&](const BertCharacters::Character& character, std::uint32_t code, std::string_view) {
                   append_utf8(storage, static_cast<std::uint32_t>(static_cast<std::int32_t>(code) + character.lower));
                   if (code == dotted_capital_i) append_utf8(storage, dot_above);
                 });
}

}  // namespace tessera::text
