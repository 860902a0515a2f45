// Patterns of names: Python's syntax, full and partial matches, errors, and a bound on steps.

#include <gtest/gtest.h>

#include <string>

#include <tessera/base/names/pattern.h>
#include <tests/error_of.h>

namespace tessera {
namespace {

using testing::error_of;

TEST(Pattern, FitsAWholeNameAndOccursInAPart) {
  const Pattern pattern("--names", R"(h\.\d+\.(attn|mlp))");
  EXPECT_TRUE(pattern.fits("h.11.attn"));
  EXPECT_FALSE(pattern.fits("h.11.attn.c_proj"));
  EXPECT_FALSE(pattern.fits("x.h.11.attn"));
  EXPECT_TRUE(pattern.occurs_in("x.h.11.attn.c_proj"));
  EXPECT_FALSE(pattern.occurs_in("h.attn"));
}

TEST(Pattern, ReadsWhatIsWrittenForPython) {
  EXPECT_TRUE(Pattern("p", R"((?i)LAYERS\.(?P<n>[0-9]+)\.q)").fits("layers.3.q"));
  EXPECT_TRUE(Pattern("p", R"(.*(?<!vision)_proj)").fits("text_proj"));
  EXPECT_FALSE(Pattern("p", R"(.*(?<!vision)_proj)").fits("vision_proj"));
  EXPECT_TRUE(Pattern("p", "").fits(""));
}

TEST(Pattern, NamesWhatIsNotOneAndWhere) {
  EXPECT_EQ(error_of([] { Pattern("--names", "h.(1"); }),
            "--names 'h.(1' is not a regular expression: missing closing parenthesis at byte 4; write it as "
            "for Python's re");
}

TEST(Pattern, EndsWhenThePatternIsMadeToTakeForEver) {
  const Pattern pattern("--names", "(a+)+$");
  const std::string error = error_of([&] { pattern.fits(std::string(60, 'a') + "!"); });
  EXPECT_NE(error.find("--names '(a+)+$' cannot be compared with 'aaa"), std::string::npos) << error;
}

}  // namespace
}  // namespace tessera
