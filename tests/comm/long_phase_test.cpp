#include <tessera/comm/long_phase.h>

#include <gtest/gtest.h>

#include <tessera/comm/life.h>

namespace tessera::comm {
namespace {

using launch::RankState;

/// What the board says now.
std::string phase() { return launch::read_text(life().slot().phase); }

TEST(LongPhase, ItIsDeclaredAndEnds) {
  const RankState before = life().state();
  life().set_state(RankState::running);
  life().set_phase("forward");
  {
    LongPhase loading("loading");
    EXPECT_EQ(life().state(), RankState::working);
    EXPECT_EQ(phase(), "loading");
    {
      const LongPhase tokens("making tokens");
      EXPECT_EQ(life().state(), RankState::working);
      EXPECT_EQ(phase(), "making tokens");
      const std::uint64_t pieces = life().slot().progress.load();
      loading.advance();
      EXPECT_EQ(life().slot().progress.load(), pieces + 1);
    }
    EXPECT_EQ(phase(), "loading");
    EXPECT_EQ(life().state(), RankState::working);
  }
  EXPECT_EQ(life().state(), RankState::running);
  EXPECT_EQ(phase(), "forward");
  life().set_state(before);
  life().set_phase("");
}

TEST(LongPhase, AStateThatSaysMoreStays) {
  const RankState before = life().state();
  life().set_state(RankState::running);
  {
    const LifeState evaluating(RankState::evaluating);
    const LongPhase report("report");
    EXPECT_EQ(life().state(), RankState::evaluating);
    EXPECT_EQ(phase(), "report");
  }
  EXPECT_EQ(life().state(), RankState::running);
  life().set_state(before);
}

}  // namespace
}  // namespace tessera::comm
