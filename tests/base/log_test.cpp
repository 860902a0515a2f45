#include <tessera/base/log.h>

#include <gtest/gtest.h>

#include <cctype>
#include <string>

namespace tessera::log {
namespace {

/// The output on stderr, with digits replaced by '#' because it contains times.
std::string captured(void (*body)()) {
  ::testing::internal::CaptureStderr();
  body();
  std::string text = ::testing::internal::GetCapturedStderr();
  for (char& c : text)
    if (std::isdigit(static_cast<unsigned char>(c))) c = '#';
  return text;
}

TEST(Log, LinesCarryTimeLevelAndRank) {
  set_level(Level::info);
  EXPECT_EQ(captured([] { info("loss ", 2.5); }), "[##:##:##] loss #.#\n");
  set_rank(3, 4);
  EXPECT_EQ(captured([] { warning("slow"); }), "[##:##:## rank #] warning: slow\n");
  set_rank(0, 1);
  EXPECT_EQ(captured([] { error("x"); }).find("rank"), std::string::npos);
}

TEST(Log, LinesBelowTheLevelAreDropped) {
  set_level(Level::warning);
  EXPECT_EQ(captured([] { info("quiet"); }), "");
  EXPECT_NE(captured([] { error("loud"); }), "");
  set_level(Level::info);
  EXPECT_EQ(captured([] { debug("quiet"); }), "");
}

TEST(Log, QuietIsForAWhileAndNeverLouder) {
  {
    const Quiet quiet(Level::error);
    EXPECT_EQ(captured([] { warning("hush"); }), "");
    const Quiet louder(Level::debug);
    EXPECT_EQ(captured([] { warning("hush"); }), "");
  }
  EXPECT_NE(captured([] { info("again"); }), "");
}

}  // namespace
}  // namespace tessera::log
