#include <tessera/base/error.h>
#include <tessera/text/unicode/character_data.h>

#include <algorithm>
#include <charconv>

namespace tessera::text {
namespace assets {
extern const std::string_view characters_txt;
}  // namespace assets

namespace {

/// A token such as "@NAME", "!41-5a", "=230" or "41-5a>61".
struct Token {
  bool removes = false;       ///< '!'
  bool begins_class = false;  ///< '=': `first` is its number
  std::string_view name;      ///< after '@'
  std::uint32_t first = 0, last = 0, step = 1;
  std::string_view to;  ///< after '>'
};

/// Consumes a number at the front of `text`.
std::uint32_t take_number(std::string_view& text, int base = 16) {
  std::uint32_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  TESSERA_CHECK(failure == std::errc() && value < code_points, "characters.txt: expected a code point at \"", text,
                '"');
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

bool take(std::string_view& text, char what) {
  if (!text.starts_with(what)) return false;
  text.remove_prefix(1);
  return true;
}

/// Consumes a sequence of code points, joined by '.', at the front of `text`.
std::u32string take_text(std::string_view& text) {
  std::u32string out;
  do out += take_number(text);
  while (take(text, '.'));
  return out;
}

Token token_of(std::string_view text) {
  Token token;
  token.removes = take(text, '!');
  token.begins_class = take(text, '=');
  if (take(text, '@')) {
    token.name = text;
    return token;
  }
  if (token.begins_class) {
    token.first = take_number(text, 10);
    return token;
  }
  token.first = token.last = take_number(text);
  if (take(text, '-')) token.last = take_number(text);
  if (take(text, '/')) token.step = take_number(text);
  if (take(text, '>')) {
    token.to = text;
  } else {
    TESSERA_CHECK(text.empty() || text[0] == ',' || text[0] == '.', "characters.txt: cannot read \"", text, '"');
  }
  return token;
}

/// Calls each(token, its text) for all tokens of the entry `name`, which ends at the first line that begins in column
/// 0.
template <class Each>
void for_each_token(std::string_view name, const Each& each) {
  const std::string head = concat('\n', name, ':');
  const std::size_t found = assets::characters_txt.find(head);
  TESSERA_CHECK(found != std::string_view::npos, "characters.txt has no entry \"", name, '"');
  std::string_view rest = assets::characters_txt.substr(found + head.size());
  while (!rest.empty()) {
    if (take(rest, '\n') && !rest.starts_with(' ')) return;
    if (take(rest, ' ')) continue;
    const std::string_view word = rest.substr(0, rest.find_first_of(" \n"));
    rest.remove_prefix(word.size());
    each(token_of(word), word);
  }
}

void add(CodeSet& set, const Token& token) {
  if (token.step == 1) return set.push_back({token.first, token.last});
  for (std::uint32_t c = token.first; c <= token.last; c += token.step) set.push_back({c, c});
}

/// Parses comma-separated texts for the code points from `next` on.
void add_texts(CharacterMap& map, std::uint32_t& next, std::string_view texts) {
  while (!texts.empty()) {
    map[next++] = take_text(texts);
    if (!texts.empty()) TESSERA_CHECK(take(texts, ','), "characters.txt: cannot read \"", texts, '"');
  }
}

}  // namespace

CodeSet character_set(std::string_view name) {
  CodeSet set;
  CodeSet removed;  // set by the tokens after the last token that added code points
  const auto settle = [&] {
    if (removed.empty()) return;
    append(removed, complement(sorted_union(std::move(set))));
    set = complement(sorted_union(std::move(removed)));
    removed.clear();
  };
  for_each_token(name, [&](const Token& token, std::string_view) {
    if (!token.removes) settle();
    CodeSet& to = token.removes ? removed : set;
    if (token.name.empty()) {
      add(to, token);
    } else {
      append(to, character_set(token.name));
    }
  });
  settle();
  return sorted_union(std::move(set));
}

std::vector<ClassRange> character_classes(std::string_view name) {
  std::vector<ClassRange> out;
  std::uint8_t number = 0;
  for_each_token(name, [&](const Token& token, std::string_view) {
    if (token.begins_class) {
      number = static_cast<std::uint8_t>(token.first);
      return;
    }
    CodeSet ranges;
    add(ranges, token);
    for (const CodeRange& range : ranges) out.push_back({range.first, range.last, number});
  });
  std::sort(out.begin(), out.end(), [](const ClassRange& a, const ClassRange& b) { return a.first < b.first; });
  return out;
}

CharacterMap character_map(std::string_view name) {
  CharacterMap map;
  std::uint32_t next = 0;  ///< the code point that belongs to a token which begins with a text
  for_each_token(name, [&](const Token& token, std::string_view text) {
    if (!token.name.empty()) {
      map = character_map(token.name);
    } else if (token.removes) {
      for (std::uint32_t c = token.first; c <= token.last; c += token.step) map.erase(c);
    } else if (token.to.empty()) {
      add_texts(map, next, text);
    } else if (token.first == token.last) {
      add_texts(map, next = token.first, token.to);
    } else {
      std::string_view to = token.to;
      std::uint32_t target = take_number(to);
      for (std::uint32_t c = token.first; c <= token.last; c += token.step, target += token.step)
        map[c] = std::u32string(1, target);
    }
  });
  return map;
}

}  // namespace tessera::text
