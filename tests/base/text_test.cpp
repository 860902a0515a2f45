#include <tessera/base/text.h>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

using namespace tessera;

TEST(Text, SplitAndJoinAreInverse) {
  EXPECT_EQ(split("a,,b", ','), (std::vector<std::string>{"a", "", "b"}));
  EXPECT_EQ(split("", ','), (std::vector<std::string>{""}));
  const std::vector<std::string> parts = {"a", "b", "c"};
  EXPECT_EQ(join(parts), "a, b, c");
  EXPECT_EQ(trim("  a b \n"), "a b");
  EXPECT_EQ(trim(" \t"), "");
  EXPECT_EQ(to_lower("AbÄ9"), "abÄ9");
}

TEST(Text, NearestFindsTyposOnly) {
  const std::vector<std::string> names = {"learning_rate", "warmup_steps", "max_steps"};
  EXPECT_EQ(nearest("learning_rte", names), "learning_rate");
  EXPECT_EQ(nearest("lerning_rate", names), "learning_rate");
  EXPECT_EQ(nearest("max_setps", names), "max_steps");
  EXPECT_EQ(nearest("zzz", names), std::nullopt);
}

/// The edit distance of two words by definition: the full table, including swaps of neighbours.
std::size_t edits(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> table(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i)
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        table[i][j] = i + j;
        continue;
      }
      table[i][j] = std::min({table[i - 1][j] + 1, table[i][j - 1] + 1, table[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        table[i][j] = std::min(table[i][j], table[i - 2][j - 2] + 1);
    }
  return table[a.size()][b.size()];
}

// Words over three letters, so that all kinds of edits occur. The result is the first of the nearest words, if near
// enough.
RC_GTEST_PROP(Text, NearestIsTheNearest, ()) {
  const auto word = rc::gen::container<std::string>(rc::gen::elementOf(std::string("abc")));
  const std::string name = *word;
  const auto candidates = *rc::gen::container<std::vector<std::string>>(word);
  std::optional<std::string> best;
  std::size_t least = std::max<std::size_t>(1, name.size() / 3) + 1;
  for (const std::string& candidate : candidates)
    if (const std::size_t distance = edits(name, candidate); distance < least) {
      least = distance;
      best = candidate;
    }
  RC_ASSERT(nearest(name, candidates) == best);
}

TEST(Text, FormatsForPeople) {
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(std::uint64_t{5} << 30), "5.0 GiB");
  EXPECT_EQ(format_count(950), "950");
  EXPECT_EQ(format_count(12345678), "12.3 M");
  EXPECT_EQ(format_duration(59.6), "1:00");
  EXPECT_EQ(format_duration(3661), "1:01:01");
  EXPECT_EQ(format_duration(-1), "?");
}

TEST(Text, RealsReadBack) {
  EXPECT_EQ(format_real(0.1), "0.1");
  EXPECT_EQ(format_real(1.0 / 3, 9), "0.333333333");
  EXPECT_EQ(format_real(-HUGE_VAL), "-inf");
  EXPECT_EQ(format_real(5e-05), "5e-05");
}
RC_GTEST_PROP(Text, ShortestRealIsExact, (double value)) {
  RC_PRE(std::isfinite(value));
  RC_ASSERT(parse_real(format_real(value)) == value);
}

TEST(Text, ParsesWholeStringsOnly) {
  EXPECT_EQ(parse_int("-42"), -42);
  for (const char* bad : {"", "4 ", " 4", "+4", "4.0", "0x10", "9223372036854775808"})
    EXPECT_EQ(parse_int(bad), std::nullopt) << bad;
  EXPECT_EQ(parse_real("3e-4"), 3e-4);
  for (const char* bad : {"", "1e", "1.5x", " 1"}) EXPECT_EQ(parse_real(bad), std::nullopt) << bad;
}

TEST(Text, Utf8) {
  EXPECT_TRUE(is_utf8("plain ä € 𝄞"));
  for (const char* bad : {"\xff", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "a\x80"})
    EXPECT_FALSE(is_utf8(bad));
}
