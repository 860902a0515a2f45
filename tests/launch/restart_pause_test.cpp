#include <tessera/launch/agent/restart_pause.h>

#include <gtest/gtest.h>

namespace tessera::launch {
namespace {

TEST(RestartPause, ItDoublesUntilTheJobGetsOn) {
  RestartPause pause(1, 30);
  for (const double seconds : {1, 2, 4, 8, 16, 30, 30}) EXPECT_EQ(pause.next(false), seconds);
  EXPECT_EQ(pause.next(true), 0);
  EXPECT_EQ(pause.next(false), 1);
}

}  // namespace
}  // namespace tessera::launch
