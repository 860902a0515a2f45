#include <gtest/gtest.h>

#include <tessera/launch/agent/arrivals.h>

namespace tessera::launch {
namespace {

/// Four ranks whose processes sleep, with a test clock.
class Host {
 public:
  Arrivals arrivals{5, 10, [](pid_t pid) {
                      return pid == 99 ? std::nullopt : std::optional(ProcStatus{pid == 101 ? 'D' : 'S', false, 0});
                    }};
  std::vector<Arrivals::Rank> ranks = {
      {0, 100, false, false}, {1, 101, false, false}, {2, 102, false, false}, {3, 99, false, false}};

  /// Advances the clock; returns when messages were printed, in seconds from now, and keeps the last text.
  std::vector<int> pass(int seconds) {
    std::vector<int> told;
    for (int i = 0; i < 10 * seconds; ++i) {
      now += std::chrono::milliseconds(100);
      if (const auto words = arrivals.look(ranks, now)) {
        told.push_back((i + 1) / 10);
        text = *words;
      }
    }
    return told;
  }

  Arrivals::Time now{std::chrono::hours(1)};
  std::string text;
};

TEST(Arrivals, NothingIsSaidOfProgramsThatNeverCome) { EXPECT_EQ(Host().pass(100), std::vector<int>()); }

TEST(Arrivals, MissingRanksAreListedAfterFiveSecondsAndEveryTen) {
  Host host;
  host.pass(60);
  host.ranks[0].came = host.ranks[0].waits = host.ranks[2].came = host.ranks[2].waits = true;
  EXPECT_EQ(host.pass(30), (std::vector<int>{5, 15, 25}));
  EXPECT_EQ(host.text,
            "waited 25 s for ranks 1, 3 of this host to reach tessera::init(); arrived: ranks 0, 2\n"
            "  rank 1 (pid 101): D (waits for a disk or a network file system)\n"
            "  rank 3 (pid 99): no such process");
  host.ranks[1].came = host.ranks[1].waits = true;
  host.pass(10);
  EXPECT_EQ(host.text.find("rank 1 (pid"), std::string::npos) << host.text;
}

TEST(Arrivals, NothingIsSaidOnceAllHaveComeOrNobodyWaits) {
  Host host;
  for (auto& rank : host.ranks) rank.came = rank.waits = true;
  EXPECT_EQ(host.pass(60), std::vector<int>());
  host.ranks[3].came = host.ranks[3].waits = false;
  for (auto& rank : host.ranks) rank.waits = false;  // the others already run: a rank of a script that does not join
  EXPECT_EQ(host.pass(60), std::vector<int>());
}

TEST(Arrivals, EachWaitBeginsAnew) {
  Host host;
  host.ranks[0].came = host.ranks[0].waits = true;
  host.pass(4);
  host.ranks[0].waits = false;
  host.pass(1);
  host.ranks[0].waits = true;
  EXPECT_EQ(host.pass(9), std::vector<int>{5});
}

}  // namespace
}  // namespace tessera::launch
