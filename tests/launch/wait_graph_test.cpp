#include <tessera/launch/fleet/rank_list.h>
#include <tessera/launch/watch/wait_graph.h>

#include <gtest/gtest.h>

#include <tessera/base/text.h>

namespace tessera::launch {
namespace {

constexpr std::int64_t now = 100'000'000'000;

struct Call {
  Op op;
  std::uint64_t sequence;
  Status status = Status::done;
  std::string group = "world";
  int group_size = 3;
  int peer = -1;
  std::uint64_t print = 1;
};

RankView rank(int number, const std::vector<Call>& calls) {
  RankView view;
  view.rank = number;
  view.pid = 50 + number;
  view.step = 40;
  view.phase = "forward";
  view.process_state = 'S';
  for (const Call& call : calls) {
    Entry entry;
    entry.id = view.entries.size();
    entry.sequence = call.sequence;
    entry.fingerprint = call.print;
    entry.op = call.op;
    entry.status = call.status;
    entry.group_size = call.group_size;
    entry.peer = call.peer;
    entry.numel = 8;
    entry.start_ns = now - 6'000'000'000;
    entry.end_ns = call.status == Status::done ? now - 5'000'000'000 : 0;
    write_text(entry.dtype, "float32");
    write_text(entry.group, call.group);
    view.entries.push_back(entry);
  }
  return view;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(WaitGraph, ARankOfAMeshIsNamedWithItsPlace) {
  RankView late = rank(3, {{Op::all_reduce, 4, Status::done, "tp 2", 2}});
  late.place = "dp_shard 1, tp 1";
  const auto verdict = find_culprit(
      {rank(2, {{Op::all_reduce, 4, Status::done, "tp 2", 2}, {Op::all_reduce, 5, Status::started, "tp 2", 2}}), late},
      now);
  EXPECT_EQ(verdict.culprits, std::vector<int>{3});
  EXPECT_TRUE(has(verdict.text, "rank 3 (dp_shard 1, tp 1; pid 53) has not reached all_reduce #5 of group 'tp 2'"))
      << verdict.text;
}

TEST(WaitGraph, TheRankThatHasNotComeIsNamed) {
  RankView late = rank(1, {{Op::all_reduce, 11}});
  late.process_state = 'R';
  const auto verdict = find_culprit({rank(0, {{Op::all_reduce, 11}, {Op::all_reduce, 12, Status::started}}), late,
                                     rank(2, {{Op::all_reduce, 11}, {Op::all_reduce, 12, Status::started}})},
                                    now);
  EXPECT_EQ(verdict.culprits, std::vector<int>{1});
  EXPECT_TRUE(has(verdict.text, "rank 1 (pid 51) has not reached all_reduce #12 of group 'world'")) << verdict.text;
  EXPECT_TRUE(has(verdict.text,
                  "where ranks 0, 2 wait for it; it is outside of any collective, step 40, forward; its "
                  "last collective: all_reduce #11 of group 'world'"))
      << verdict.text;
  EXPECT_TRUE(has(verdict.text, "ended 5 s ago, process state R (running or waiting for a processor)")) << verdict.text;
}

TEST(WaitGraph, ARankThatNeverBeganAnythingIsNamed) {
  const auto verdict = find_culprit(
      {rank(0, {{Op::barrier, 0, Status::started}}), rank(1, {}), rank(2, {{Op::barrier, 0, Status::started}})}, now);
  EXPECT_EQ(verdict.culprits, std::vector<int>{1});
  EXPECT_TRUE(has(verdict.text, "it has begun no collective")) << verdict.text;
}

TEST(WaitGraph, AsynchronousCollectivesThatNobodyWaitedForAreNoWait) {
  // Rank 0 launched #1 and #2 without waiting, then completed #3: only #4 is unfinished.
  const auto verdict = find_culprit(
      {rank(0, {{Op::all_reduce, 1, Status::started},
                {Op::all_reduce, 2, Status::started},
                {Op::all_reduce, 3},
                {Op::all_reduce, 4, Status::started}}),
       rank(1, {{Op::all_reduce, 3}}), rank(2, {{Op::all_reduce, 3}, {Op::all_reduce, 4, Status::started}})},
      now);
  EXPECT_EQ(verdict.culprits, std::vector<int>{1});
  EXPECT_TRUE(has(verdict.text, "#4")) << verdict.text;
}

TEST(WaitGraph, TheBeginningOfAChainIsNamed) {
  // 0 waits for 1 in 'a'; 1 waits for 2 in 'b'; 2 computes.
  const auto verdict =
      find_culprit({rank(0, {{Op::all_gather, 5, Status::started, "a", 2}}),
                    rank(1, {{Op::all_gather, 4, Status::done, "a", 2}, {Op::barrier, 7, Status::started, "b", 2}}),
                    rank(2, {{Op::barrier, 6, Status::done, "b", 2}})},
                   now);
  EXPECT_EQ(verdict.culprits, std::vector<int>{2}) << verdict.text;
}

TEST(WaitGraph, ACircleIsTold) {
  const auto verdict =
      find_culprit({rank(0,
                         {
                             {Op::all_gather, 5, Status::started, "a", 2},
                         }),
                    rank(1, {{Op::all_gather, 4, Status::done, "a", 2}, {Op::barrier, 7, Status::started, "b", 2}}),
                    rank(2, {{Op::barrier, 6, Status::done, "b", 2}, {Op::reduce, 1, Status::started, "c", 2}}),
                    rank(3, {{Op::reduce, 1, Status::started, "c", 2}})},
                   now);
  // 2 and 3 are together in 'c' and wait for no other rank, so there is no cycle; 1 waits for 2.
  EXPECT_EQ(verdict.culprits, std::vector<int>{2}) << verdict.text;
  const auto circle = find_culprit({rank(0, {{Op::send, 0, Status::started, "world", 2, 1}}),
                                    rank(1, {{Op::send, 0, Status::started, "world", 2, 0}})},
                                   now);
  EXPECT_EQ(circle.culprits, (std::vector<int>{0, 1}));
  EXPECT_TRUE(has(circle.text, "ranks 0, 1 wait for each other: rank 0 (pid 50) is in send #0")) << circle.text;
}

TEST(WaitGraph, DifferentCollectivesUnderOneNumberAreTold) {
  const Call other = {Op::broadcast, 12, Status::started, "world", 3, 0, 2};
  const auto verdict = find_culprit({rank(0, {{Op::all_reduce, 12, Status::started}}), rank(1, {other}),
                                     rank(2, {{Op::all_reduce, 12, Status::started}})},
                                    now);
  EXPECT_EQ(verdict.culprits, std::vector<int>{1});
  EXPECT_TRUE(has(verdict.text, "rank 1 is in broadcast #12")) << verdict.text;
  EXPECT_TRUE(has(verdict.text, "ranks 0, 2 are in all_reduce #12")) << verdict.text;
}

TEST(WaitGraph, AllInsideIsNobodysFault) {
  const std::vector<Call> calls = {{Op::all_reduce, 3, Status::started}};
  const auto verdict = find_culprit({rank(0, calls), rank(1, calls), rank(2, calls)}, now);
  EXPECT_EQ(verdict.culprits, (std::vector<int>{0, 1, 2}));
  EXPECT_TRUE(has(verdict.text, "all ranks have reached all_reduce #3")) << verdict.text;
}

TEST(WaitGraph, WhoIsBlockedCountsNotWhatIsUnfinished) {
  // All ranks but 2 have passed #3. If rank 2 is blocked in #3, it is stuck; if not, it is computing.
  std::vector<RankView> ranks = {rank(0, {{Op::all_reduce, 3}, {Op::all_reduce, 4, Status::started}}),
                                 rank(1, {{Op::all_reduce, 3}, {Op::all_reduce, 4, Status::started}}),
                                 rank(2, {{Op::all_reduce, 3, Status::started}})};
  for (RankView& each : ranks) {
    each.knows_blocked = true;
    each.blocked_in = each.entries.back().id;
  }
  const auto stuck = find_culprit(ranks, now);
  EXPECT_EQ(stuck.culprits, std::vector<int>{2});
  EXPECT_TRUE(stuck.certain);
  EXPECT_TRUE(has(stuck.text, "rank 2 (pid 52) does not leave all_reduce #3")) << stuck.text;
  EXPECT_TRUE(has(stuck.text, "which all of its peers have passed")) << stuck.text;
  ranks[2].blocked_in.reset();
  const auto computes = find_culprit(ranks, now);
  EXPECT_EQ(computes.culprits, std::vector<int>{2});
  EXPECT_FALSE(computes.certain);
  ranks[2].gone = true;
  EXPECT_TRUE(find_culprit(ranks, now).certain) << "nobody comes any more";
}

TEST(WaitGraph, OneThatHasNotPassedIsNoProof) {
  std::vector<RankView> ranks = {rank(0, {{Op::broadcast, 3}}), rank(1, {{Op::broadcast, 3, Status::started}}),
                                 rank(2, {{Op::broadcast, 3, Status::started}})};
  EXPECT_FALSE(find_culprit(ranks, now).certain) << "the root has passed, the others receive";
}

TEST(WaitGraph, NobodyInside) {
  const auto verdict = find_culprit({rank(0, {{Op::all_reduce, 3}}), rank(1, {{Op::all_reduce, 3}})}, now);
  EXPECT_EQ(verdict.culprits, (std::vector<int>{0, 1}));
  EXPECT_TRUE(has(verdict.text, "rank 1 (pid 51) is outside of any collective, step 40")) << verdict.text;
  EXPECT_TRUE(find_culprit({}, now).culprits.empty());
}

TEST(WaitGraph, ListsOfRanks) {
  EXPECT_EQ(list_ranks({}), "");
  EXPECT_EQ(list_ranks({4}), "4");
  EXPECT_EQ(list_ranks({0, 1}), "0, 1");
  EXPECT_EQ(list_ranks({0, 1, 2, 3, 7, 9, 10}), "0-3, 7, 9, 10");
}

}  // namespace
}  // namespace tessera::launch
