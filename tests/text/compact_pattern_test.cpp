#include <tessera/text/bpe/compact_pattern.h>
#include <tessera/text/bpe/regex_split.h>
#include <tessera/text/unicode/utf8.h>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace tessera::text {
namespace {

const std::vector<std::string>& patterns() {
  static const std::vector<std::string> all = {
      // Llama-3
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
      R"(|\s+(?!\S)|\s+)",
      // Qwen2
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S))"
      R"(|\s+)",
      // GPT-4o
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
      R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
      R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      // parts of DeepSeek's
      "\\s?[A-Za-z\xC2\xB5\xC3\x80-\xC3\x96]+", "[\xE4\xB8\x80-\xE9\xBE\xA5\xE0\xA0\x80-\xE4\xB8\x80]+",
      R"(\s?[!-/:-~]+)", R"([\p{P}\P{L}]+?(?=\p{L})|(?>\p{M}+)|.)", "(?i:kiss)|\xC3\xA9+|\\.\\-+|[\\-\\]x]"};
  return all;
}

/// Characters that such patterns distinguish, of every UTF-8 width.
const std::vector<std::string>& characters() {
  static const std::vector<std::string> all = {"a",
                                               "S",
                                               "s",
                                               "T",
                                               "k",
                                               "K",
                                               "i",
                                               "'",
                                               "'",
                                               "0",
                                               "7",
                                               " ",
                                               " ",
                                               "\n",
                                               "\r",
                                               "\t",
                                               "!",
                                               "/",
                                               "-",
                                               ".",
                                               "x",
                                               "]",
                                               "\xC2\xA0",
                                               "\xC2\xB5",
                                               "\xC3\xA9",
                                               "\xC3\x89",
                                               "\xC5\xBF",
                                               "\xC7\x85",
                                               "\xCA\xB0",
                                               "\xCC\x81",
                                               "\xE0\xA4\x95",
                                               "\xE0\xA4\xBE",
                                               "\xE0\xA5\xA7",
                                               "\xE1\x9A\x80",
                                               "\xE2\x80\xA8",
                                               "\xE2\x84\xAA",
                                               "\xE2\x85\xA3",
                                               "\xE3\x80\x80",
                                               "\xE4\xB8\xAD",
                                               "\xE9\xBE\xA5",
                                               "\xEF\xBF\xBD",
                                               "\xF0\x9D\x94\x98",
                                               "\xF0\x9F\x98\x80",
                                               "\xF4\x8F\xBF\xBF"};
  return all;
}

using Spans = std::vector<std::pair<std::size_t, std::size_t>>;

Spans matches(const RegexSplitter& splitter, const std::string& text, RegexScratch& scratch) {
  Spans out;
  RegexSearch search(splitter, text, scratch);
  while (const auto match = search.next()) out.emplace_back(match->begin, match->end);
  return out;
}

TEST(CompactPattern, TranslatesWhatTokenizersUse) {
  for (const std::string& pattern : patterns()) EXPECT_TRUE(compact(pattern)) << pattern;
}

TEST(CompactPattern, LeavesTheUnusualToTheOtherEngine) {
  for (const char* pattern : {"(?i:[a-z])", R"([\s-x])", "(?i)x", "(*UTF)x", R"([^\s\S]x)", "(?i:\xC3\xA9)"}) {
    EXPECT_FALSE(compact(pattern)) << pattern;
  }
}

TEST(CompactPattern, AsciiStaysAsItIs) {
  const auto pattern = compact(R"(\p{L}+)");
  ASSERT_TRUE(pattern);
  for (std::uint32_t c = 0; c < 0x80; ++c) EXPECT_EQ(pattern->alphabet.of(c), c);
  std::string out;
  pattern->alphabet.translate("a\xC3\xA9 \xE2\x82\xAC", out);
  ASSERT_EQ(out.size(), 4u);
  EXPECT_NE(out[1], out[3]) << "a letter and a sign are different bytes";
}

RC_GTEST_PROP(CompactPattern, FindsTheSameMatchesAsUtf8, ()) {
  const std::string pattern = *rc::gen::elementOf(patterns());
  const auto picked = *rc::gen::container<std::vector<std::string>>(rc::gen::elementOf(characters()));
  std::string text;
  for (const std::string& character : picked) text += character;
  RegexScratch scratch;
  RC_ASSERT(matches(RegexSplitter(pattern, "here"), text, scratch) ==
            matches(RegexSplitter(pattern, "here", false), text, scratch));
}

TEST(CompactPattern, SearchesNest) {
  const RegexSplitter words(R"(\p{L}+)", "here"), marks(R"(\p{Lu})", "here");
  const std::string text =
      "\xC3\x89t\xC3\xA9 \xC3\x89"
      "A";
  RegexScratch scratch;
  RegexSearch outer(words, text, scratch);
  std::vector<std::string> found;
  while (const auto word = outer.next()) {
    const std::string piece = text.substr(word->begin, word->end - word->begin);
    for (const auto& [begin, end] : matches(marks, piece, scratch)) found.push_back(piece.substr(begin, end - begin));
  }
  EXPECT_EQ(found, (std::vector<std::string>{"\xC3\x89", "\xC3\x89", "A"}));
}

}  // namespace
}  // namespace tessera::text
