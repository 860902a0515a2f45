#include <tessera/comm/long_phase.h>

#include <gtest/gtest.h>

#include <tessera/comm/heartbeat.h>
#include <tessera/launch/cli/environment.h>

namespace tessera::comm {
namespace {

using launch::RankState;

/// Starts a running rank on a fresh board: another test's failure would persist on a shared one.
void begin() {
  launch::RankEnvironment alone;
  alone.world_size = 1;
  heartbeat().join(alone);
  heartbeat().set_state(RankState::running);
}

/// The phase on the board.
std::string phase() { return launch::read_text(heartbeat().slot().phase); }

TEST(LongPhase, ItIsDeclaredAndEnds) {
  begin();
  heartbeat().set_phase("forward");
  {
    LongPhase loading("loading");
    EXPECT_EQ(heartbeat().state(), RankState::working);
    EXPECT_EQ(phase(), "loading");
    {
      const LongPhase tokens("making tokens");
      EXPECT_EQ(heartbeat().state(), RankState::working);
      EXPECT_EQ(phase(), "making tokens");
      const std::uint64_t pieces = heartbeat().slot().progress.load();
      loading.advance();
      EXPECT_EQ(heartbeat().slot().progress.load(), pieces + 1);
    }
    EXPECT_EQ(phase(), "loading");
    EXPECT_EQ(heartbeat().state(), RankState::working);
  }
  EXPECT_EQ(heartbeat().state(), RankState::running);
  EXPECT_EQ(phase(), "forward");
  heartbeat().set_phase("");
}

TEST(LongPhase, AStateThatSaysMoreStays) {
  begin();
  {
    const LifeState evaluating(RankState::evaluating);
    const LongPhase report("report");
    EXPECT_EQ(heartbeat().state(), RankState::evaluating);
    EXPECT_EQ(phase(), "report");
  }
  EXPECT_EQ(heartbeat().state(), RankState::running);
}

}  // namespace
}  // namespace tessera::comm
