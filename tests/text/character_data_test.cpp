// Every property of every code point, 0 to 0x10ffff, as a recorded hash: tokenizer ids depend on each of them.
#include <tessera/text/jinja/characters.h>
#include <tessera/text/unicode/char_class.h>
#include <tessera/text/unicode/code_set.h>
#include <tessera/text/unicode/grapheme.h>
#include <tessera/text/unicode/normal_form.h>
#include <tessera/text/unicode/script.h>
#include <tessera/text/unicode/utf8.h>
#include <tessera/text/wordpiece/bert_characters.h>

#include <gtest/gtest.h>

#include <string>

namespace tessera::text {
namespace {

/// A 64-bit hash of numbers and texts in order.
class Hash {
 public:
  void add(std::uint64_t number) {
    value_ = (value_ ^ number) * 0x9e3779b97f4a7c15;
    value_ ^= value_ >> 29;
  }
  void add(std::string_view text) {
    for (const char byte : text) add(static_cast<unsigned char>(byte));
    add(text.size());
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

std::string utf8(std::uint32_t code) {
  std::string out;
  append_utf8(out, code);
  return out;
}

/// Surrogates, which never occur in text, and planes without characters, which would only cost time.
bool is_left_out(std::uint32_t code) {
  return (code >= 0xd800 && code < 0xe000) || (code >= 0x34000 && code < 0xe0000) || code >= 0xe1000;
}

/// The hash of property(code) for all code points, or only for those that occur in text.
template <class Property>
std::uint64_t hash_of(const Property& property, bool all = false) {
  Hash hash;
  for (std::uint32_t code = 0; code < code_points; ++code)
    if (all || !is_left_out(code)) hash.add(property(code));
  return hash.value();
}

std::uint64_t number(std::int64_t value) { return static_cast<std::uint64_t>(value); }

using Form = std::string_view (*)(std::string_view, std::string&);

std::string form_of(Form form, std::string_view text) {
  std::string storage;
  return std::string(form(text, storage));
}

/// Marks of all combining classes in canonical order, with `code` at the position of its class.
std::string ordered(std::uint32_t code) {
  static const std::string least = utf8(0x334), greatest = utf8(0x345);
  static const std::string all = [] {
    std::string marks;
    for (std::uint32_t c = 0x300; c < 0x1100; ++c) marks += utf8(c);
    return form_of(to_nfd, marks);
  }();
  const std::string own = form_of(to_nfd, utf8(code));
  const bool moves = form_of(to_nfd, greatest + own) != greatest + own || form_of(to_nfd, own + least) != own + least;
  return moves ? form_of(to_nfd, all + own) : "";
}

/// The NFC form of the decomposition of `code`.
std::string joined_again(std::uint32_t code) {
  const std::string own = utf8(code), parts = form_of(to_nfd, own);
  return parts == own ? "" : form_of(to_nfc, parts);
}

struct Recorded {
  std::string name;
  std::uint64_t hash, expected;
};

void check(const std::vector<Recorded>& all) {
  for (const Recorded& one : all) EXPECT_EQ(one.hash, one.expected) << one.name << ": " << one.hash << "u";
}

TEST(CharacterData, PropertiesOfRegularExpressions) {
  const std::vector<std::pair<std::string, std::uint64_t>> expected = {
      {"", 0x759846de8902396},       {"L", 0x217c99460fb7e973},    {"Lu", 0x6ae5aa7055f79d77},
      {"Ll", 0xa7e27284927ddbf6},    {"Lt", 0xd75ef713b5c5f627},   {"Lm", 0xa24c842bbabd0c81},
      {"Lo", 0x689be95e957ab9f8},    {"M", 0x45612a6cd991d950},    {"N", 0xc6bcad5ed9e4b49e},
      {"Nd", 0xd3dcf24afb7c9337},    {"P", 0xfbee55607b866d4e},    {"S", 0xfb6eac9f3abd0f7e},
      {"digit", 0x41408f2bdf14f867}, {"word", 0x46111f07f0f4e8b7}, {"combining", 0xab8dc997396db8a}};
  std::vector<Recorded> all;
  for (const auto& [name, hash] : expected) {
    const CodeSet* set = find_property(name);
    ASSERT_NE(set, nullptr) << name;
    Hash ranges;
    for (const CodeRange& range : *set) {
      ranges.add(range.first);
      ranges.add(range.last);
    }
    all.push_back({name, ranges.value(), hash});
  }
  all.push_back({"class",
                 hash_of([](std::uint32_t c) { return number(static_cast<int>(CharClasses::get().of(c))); }, true),
                 0xd3c86ee527acf91c});
  all.push_back({"script", hash_of([](std::uint32_t c) { return number(script_class(c)); }, true), 0x82473c9b407e1743});
  check(all);
}

TEST(CharacterData, NormalForms) {
  check({{"NFC", hash_of([](std::uint32_t c) { return form_of(to_nfc, utf8(c)); }), 0x56ccf89866f05a48},
         {"NFD", hash_of([](std::uint32_t c) { return form_of(to_nfd, utf8(c)); }), 0xd17473f162a29bc5},
         {"NFKC", hash_of([](std::uint32_t c) { return form_of(to_nfkc, utf8(c)); }), 0x886fc5d77c2b5fb8},
         {"NFKD", hash_of([](std::uint32_t c) { return form_of(to_nfkd, utf8(c)); }), 0x4427147aadeac760},
         {"compositions", hash_of([](std::uint32_t c) { return joined_again(c); }), 0x8d90e43f67111952},
         {"combining class", hash_of(ordered), 0xf0a1fd02ceb2a626}});
}

TEST(CharacterData, Graphemes) {
  const std::string acute = utf8(0x301);
  check({{"behind a letter", hash_of([](std::uint32_t c) { return number(grapheme_end("a" + utf8(c), 0) == 1); }),
          0x816a1f884e50723e},
         {"before a letter", hash_of([](std::uint32_t c) { return number(grapheme_end(utf8(c) + "a", 0)); }),
          0xfcc75a78cd406236},
         {"before a mark", hash_of([&](std::uint32_t c) { return number(grapheme_end(utf8(c) + acute, 0)); }),
          0x1b46faddd3e4c450}});
}

TEST(CharacterData, Bert) {
  const BertCharacters& all = BertCharacters::get();
  check({{"flags", hash_of([&](std::uint32_t c) { return number(all.of(c).flags); }, true), 0xf6d42da66ff7275f},
         {"lower", hash_of([&](std::uint32_t c) { return number(all.of(c).lower); }, true), 0x2a60e5f8d48b26aa},
         {"lower text", hash_of([](std::uint32_t c) { return form_of(to_lower_case, utf8(c)); }), 0x6d30269b272e56f7}});
}

TEST(CharacterData, Python) {
  using jinja::Case;
  check(
      {{"printable", hash_of([](std::uint32_t c) { return number(jinja::is_printable(c)); }, true), 0x1cf61b480cfb040},
       {"lower", hash_of([](std::uint32_t c) { return jinja::to_case(utf8(c), Case::lower); }), 0xc8bf70bd1c816e26},
       {"upper", hash_of([](std::uint32_t c) { return jinja::to_case(utf8(c), Case::upper); }), 0x7ec757ad3bd03556},
       {"title", hash_of([](std::uint32_t c) { return jinja::to_case(utf8(c), Case::title); }), 0x3b539a20a8f48166}});
}

}  // namespace
}  // namespace tessera::text
