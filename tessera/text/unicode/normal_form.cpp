#include <tessera/text/unicode/character_data.h>
#include <tessera/text/unicode/normal_form.h>
#include <tessera/text/unicode/utf8.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

namespace tessera::text {
namespace {

// Hangul syllables are composed of leading, vowel and trailing letters by arithmetic (Unicode Standard 3.12).
constexpr std::uint32_t syllable_base = 0xAC00, leading_base = 0x1100, vowel_base = 0x1161, trailing_base = 0x11A7;
constexpr std::uint32_t leading_count = 19, vowel_count = 21, trailing_count = 28;
constexpr std::uint32_t syllable_count = leading_count * vowel_count * trailing_count;

/// every code point below this is its own form C and D and has class 0
constexpr std::uint32_t first_unsettled = 0xC0;

constexpr std::uint32_t first_compatible = 0xA0;  ///< the same for forms KC and KD

/// Properties of a code point for the quick checks and the algorithms.
struct Character {
  std::uint8_t combining_class = 0;
  bool decomposes = false;      ///< differs from its own form D
  bool unsettled_in_c = false;  ///< form C may change it or join it to a preceding character
  bool compatible = false;      ///< forms KC and KD replace it
};

class Tables {
 public:
  static const Tables& get() {
    static const Tables tables;
    return tables;
  }

  const Character& of(std::uint32_t code) const { return blocks_[block_of_[code >> 8]][code & 255]; }

  /// Appends the full canonical decomposition, or the compatibility decomposition.
  void decompose(std::uint32_t code, std::vector<std::uint32_t>& out, bool compatibly) const {
    if (!compatibly || !of(code).compatible) return decompose(code, out);
    const std::u32string& parts = compatible_.at(code);
    out.insert(out.end(), parts.begin(), parts.end());
  }

  void decompose(std::uint32_t code, std::vector<std::uint32_t>& out) const {
    if (!of(code).decomposes) return out.push_back(code);
    if (const std::uint32_t s = code - syllable_base; s < syllable_count) {
      out.push_back(leading_base + s / (vowel_count * trailing_count));
      out.push_back(vowel_base + s / trailing_count % vowel_count);
      if (s % trailing_count != 0) out.push_back(trailing_base + s % trailing_count);
      return;
    }
    const std::u32string& parts = parts_.at(code);
    decompose(parts[0], out);
    if (parts.size() > 1) out.push_back(parts[1]);
  }

  std::optional<std::uint32_t> compose(std::uint32_t first, std::uint32_t second) const {
    if (first - leading_base < leading_count && second - vowel_base < vowel_count)
      return syllable_base + ((first - leading_base) * vowel_count + second - vowel_base) * trailing_count;
    if (first - syllable_base < syllable_count && (first - syllable_base) % trailing_count == 0 &&
        second - trailing_base - 1 < trailing_count - 1)
      return first + second - trailing_base;
    const auto found = whole_.find(std::uint64_t{first} << 32 | second);
    return found == whole_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  using Block = std::array<Character, 256>;

  Tables() : blocks_(1), parts_(character_map("decomposed")), compatible_(character_map("compatible")) {
    for (const ClassRange& range : character_classes("combining_class"))
      for (std::uint32_t c = range.first; c <= range.last; ++c) {
        at(c).combining_class = range.number;
        at(c).unsettled_in_c = true;
      }
    for (const auto& [code, parts] : parts_) {
      at(code).decomposes = true;
      at(code).unsettled_in_c = true;
    }
    for (const auto& [code, parts] : character_map("composed")) {
      at(code).decomposes = true;
      at(parts[1]).unsettled_in_c = true;
      parts_.emplace(code, parts);
      whole_.emplace(std::uint64_t{parts[0]} << 32 | parts[1], code);
    }
    for (std::uint32_t s = 0; s < syllable_count; ++s) at(syllable_base + s).decomposes = true;
    for (std::uint32_t v = 0; v < vowel_count; ++v) at(vowel_base + v).unsettled_in_c = true;
    for (std::uint32_t t = 1; t < trailing_count; ++t) at(trailing_base + t).unsettled_in_c = true;
    for (const auto& [code, parts] : compatible_) at(code).compatible = true;
  }

  Character& at(std::uint32_t code) {
    std::uint16_t& block = block_of_[code >> 8];
    if (block == 0) {
      block = static_cast<std::uint16_t>(blocks_.size());
      blocks_.emplace_back();
    }
    return blocks_[block][code & 255];
  }

  std::array<std::uint16_t, 0x1100> block_of_{};
  std::vector<Block> blocks_;  ///< the first entry has only default values and is shared
  CharacterMap parts_;         ///< canonical decompositions; the first part may decompose again
  std::unordered_map<std::uint64_t, std::uint32_t> whole_;
  CharacterMap compatible_;  ///< compatibility decompositions, in full
};

/// Sorts marks after a starter by their classes (stable).
void order_marks(std::vector<std::uint32_t>& codes, const Tables& tables) {
  const auto class_of = [&](std::uint32_t code) { return tables.of(code).combining_class; };
  for (std::size_t begin = 0; begin < codes.size();) {
    std::size_t end = begin;
    while (end < codes.size() && class_of(codes[end]) != 0) ++end;
    std::stable_sort(codes.begin() + static_cast<std::ptrdiff_t>(begin),
                     codes.begin() + static_cast<std::ptrdiff_t>(end),
                     [&](std::uint32_t a, std::uint32_t b) { return class_of(a) < class_of(b); });
    begin = end + 1;
  }
}

/// Joins code points with the preceding starter where possible, unless a mark of the same or a higher class (or a
/// starter) is in between. Works in place.
void compose(std::vector<std::uint32_t>& codes, const Tables& tables) {
  std::size_t out = 0;
  std::optional<std::size_t> starter;
  int last_class = -1;  // class of the last character between the starter and the next; -1: none
  for (const std::uint32_t code : std::vector<std::uint32_t>(codes)) {
    const int combining_class = tables.of(code).combining_class;
    if (starter && last_class < combining_class) {
      if (const auto whole = tables.compose(codes[*starter], code)) {
        codes[*starter] = *whole;
        continue;
      }
    }
    if (combining_class == 0) {
      starter = out;
      last_class = -1;
    } else {
      last_class = combining_class;
    }
    codes[out++] = code;
  }
  codes.resize(out);
}

std::size_t ascii_end(std::string_view text, std::size_t at) {
  while (at + 8 <= text.size()) {
    std::uint64_t word;
    std::memcpy(&word, text.data() + at, 8);
    if (word & 0x8080808080808080u) break;
    at += 8;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

/// Copies settled code points and rewrites the stretches of unsettled ones between them. `settled(code)`: the form
/// neither changes the code point nor joins it to a preceding one.
template <class Settled>
std::string_view rewrite(std::string_view text, std::string& storage, bool composed, bool compatibly,
                         const Settled& settled) {
  const Tables& tables = Tables::get();
  std::vector<std::uint32_t> codes;
  std::size_t copied = 0;  // everything before it is already in storage
  std::size_t last = 0;    // start of the last settled code point (or of the text)
  bool changed = false;
  for (std::size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      at = ascii_end(text, at);
      last = at - 1;
      continue;
    }
    CodePoint c = code_point_at(text, at);
    if (settled(c.value)) {
      last = at;
      at += c.size;
      continue;
    }
    std::size_t end = at;  // end of the stretch: start of the next settled code point
    do {
      end += c.size;
      if (end == text.size()) break;
      c = code_point_at(text, end);
    } while (!settled(c.value));
    codes.clear();
    for (std::size_t i = last; i < end;) {
      const CodePoint part = code_point_at(text, i);
      tables.decompose(part.value, codes, compatibly);
      i += part.size;
    }
    order_marks(codes, tables);
    if (composed) compose(codes, tables);
    if (!changed) storage.clear();
    changed = true;
    storage.append(text.substr(copied, last - copied));
    for (const std::uint32_t code : codes) append_utf8(storage, code);
    copied = at = last = end;
  }
  if (!changed) return text;
  storage.append(text.substr(copied));
  return storage;
}

}  // namespace

std::string_view to_nfc(std::string_view text, std::string& storage) {
  const Tables& tables = Tables::get();
  return rewrite(text, storage, true, false,
                 [&](std::uint32_t code) { return code < first_unsettled || !tables.of(code).unsettled_in_c; });
}

std::string_view to_nfd(std::string_view text, std::string& storage) {
  const Tables& tables = Tables::get();
  return rewrite(text, storage, false, false, [&](std::uint32_t code) {
    if (code < first_unsettled) return true;
    const Character& character = tables.of(code);
    return !character.decomposes && character.combining_class == 0;
  });
}

std::string_view to_nfkc(std::string_view text, std::string& storage) {
  const Tables& tables = Tables::get();
  return rewrite(text, storage, true, true, [&](std::uint32_t code) {
    const Character& character = tables.of(code);
    return code < first_compatible || (!character.unsettled_in_c && !character.compatible);
  });
}

std::string_view to_nfkd(std::string_view text, std::string& storage) {
  const Tables& tables = Tables::get();
  return rewrite(text, storage, false, true, [&](std::uint32_t code) {
    const Character& character = tables.of(code);
    return code < first_compatible ||
           (!character.decomposes && !character.compatible && character.combining_class == 0);
  });
}

}  // namespace tessera::text
