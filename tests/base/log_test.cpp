#include <tessera/base/log.h>

#include <gtest/gtest.h>

#include <regex>

namespace tessera::log {
namespace {

std::string captured(void (*body)()) {
  testing::internal::CaptureStderr();
  body();
  return testing::internal::GetCapturedStderr();
}

TEST(Log, LinesCarryTimeLevelAndRank) {
  set_level(Level::info);
  const std::string alone = captured([] { info("loss ", 2.5); });
  EXPECT_TRUE(std::regex_match(alone, std::regex(R"(\[\d\d:\d\d:\d\d\] loss 2\.5\n)"))) << alone;
  set_rank(3, 4);
  const std::string ranked = captured([] { warning("slow"); });
  EXPECT_TRUE(std::regex_match(ranked, std::regex(R"(\[\d\d:\d\d:\d\d rank 3\] warning: slow\n)"))) << ranked;
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

}  // namespace
}  // namespace tessera::log
