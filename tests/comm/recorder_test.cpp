#include <tessera/comm/recorder.h>
#include <tests/stopwatch.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace tessera::comm;

Entry entry_of(Op op, std::int64_t bytes, int size, const char* group = "world") {
  Entry entry;
  entry.op = op;
  entry.payload_bytes = bytes;
  entry.group_size = size;
  entry.wire_bytes = wire_bytes(op, bytes, size);
  tessera::launch::write_text(entry.group, group);
  return entry;
}

Entry begun(Recorder& recorder, Entry entry) {
  recorder.begin(entry);
  return entry;
}

TEST(Recorder, wire_bytes_by_theory) {
  EXPECT_EQ(wire_bytes(Op::all_reduce, 1000, 4), 1500);
  EXPECT_EQ(wire_bytes(Op::all_gather, 1000, 4), 750);
  EXPECT_EQ(wire_bytes(Op::reduce_scatter, 1000, 2), 500);
  EXPECT_EQ(wire_bytes(Op::broadcast, 1000, 4), 1000);
  EXPECT_EQ(wire_bytes(Op::send, 1000, 2), 1000);
  EXPECT_EQ(wire_bytes(Op::recv, 1000, 2), 0) << "who sends it has counted it";
  EXPECT_EQ(wire_bytes(Op::barrier, 0, 4), 0);
  EXPECT_EQ(wire_bytes(Op::all_reduce, 1000, 1), 0);
}

TEST(Recorder, keeps_the_last_entries_in_order) {
  Recorder recorder;
  EXPECT_TRUE(recorder.last().empty());
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(begun(recorder, entry_of(Op::barrier, 0, 2)).id, static_cast<std::uint64_t>(i));
  ASSERT_EQ(recorder.last().size(), 10u);
  ASSERT_EQ(recorder.last(3).size(), 3u);
  EXPECT_EQ(recorder.last(3).front().id, 7u);
  for (std::size_t i = 10; i < Recorder::capacity + 5; ++i) begun(recorder, entry_of(Op::barrier, 0, 2));
  const auto entries = recorder.last();
  ASSERT_EQ(entries.size(), Recorder::capacity);
  EXPECT_EQ(entries.front().id, 5u);
  EXPECT_EQ(entries.back().id, Recorder::capacity + 4);
  EXPECT_EQ(recorder.totals().at(0).count, Recorder::capacity + 5);
}

TEST(Recorder, finishing_sets_status_and_totals) {
  Recorder recorder;
  const Entry first = begun(recorder, entry_of(Op::all_reduce, 1000, 4));
  const Entry second = begun(recorder, entry_of(Op::send, 10, 4));
  recorder.finish(first, Status::done, 2'000'000'000);
  EXPECT_FALSE(recorder.any_failed());
  recorder.finish(second, Status::failed, 500'000'000);
  EXPECT_TRUE(recorder.any_failed());
  const auto entries = recorder.last();
  EXPECT_EQ(entries[0].status, Status::done);
  EXPECT_EQ(entries[0].waited_ns, 2'000'000'000);
  EXPECT_GE(entries[0].end_ns, entries[0].start_ns);
  EXPECT_EQ(entries[1].status, Status::failed);
  const auto totals = recorder.totals();
  ASSERT_EQ(totals.size(), 2u);
  EXPECT_EQ(totals[0].op, Op::all_reduce);
  EXPECT_EQ(totals[0].payload_bytes, 1000);
  EXPECT_EQ(totals[0].wire_bytes, 1500);
  EXPECT_DOUBLE_EQ(totals[0].seconds_waited, 2);
  recorder.clear();
  EXPECT_TRUE(recorder.last().empty());
  EXPECT_TRUE(recorder.totals().empty());
  EXPECT_FALSE(recorder.any_failed());
}

TEST(Recorder, an_entry_that_left_the_ring_is_not_confused_with_its_successor) {
  Recorder recorder;
  const Entry old = begun(recorder, entry_of(Op::reduce, 8, 2));
  for (std::size_t i = 0; i < Recorder::capacity; ++i) begun(recorder, entry_of(Op::barrier, 0, 2));
  recorder.finish(old, Status::done, 1'000'000'000);
  for (const Entry& entry : recorder.last()) EXPECT_EQ(entry.status, Status::started);
  EXPECT_DOUBLE_EQ(recorder.totals().at(0).seconds_waited, 1);
}

TEST(Recorder, threads_lose_nothing) {
  Recorder recorder;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) recorder.finish(begun(recorder, entry_of(Op::send, 1, 2)), Status::done, 1);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(recorder.totals().at(0).count, 4000u);
  const auto entries = recorder.last();
  EXPECT_EQ(entries.size(), 4000u);
  for (const Entry& entry : entries) EXPECT_EQ(entry.status, Status::done);
}

// Permanent recording costs less than one copy of a gradient bucket; a collective makes several such copies.
TEST(Recorder, costs_less_than_a_copy_of_a_bucket) {
  using tessera::testing::seconds_on;
  Recorder recorder;
  const Entry entry = entry_of(Op::all_reduce, 1000, 4);
  const std::vector<char> bucket(1 << 20, 'x');
  std::vector<char> copy(bucket.size());
  double recorded = 1, copied = 1;  // minimum of several rounds, in seconds of this thread's CPU time
  for (int round = 0; round < 20; ++round) {
    double begin = seconds_on(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < 100; ++i) recorder.finish(begun(recorder, entry), Status::done, 1, 2);
    recorded = std::min(recorded, (seconds_on(CLOCK_THREAD_CPUTIME_ID) - begin) / 100);
    begin = seconds_on(CLOCK_THREAD_CPUTIME_ID);
    std::copy(bucket.begin(), bucket.end(), copy.begin());
    copied = std::min(copied, seconds_on(CLOCK_THREAD_CPUTIME_ID) - begin);
    ASSERT_EQ(copy.back(), 'x');
  }
  std::printf("  %.0f ns per collective, %.0f ns to copy 1 MiB\n", 1e9 * recorded, 1e9 * copied);
  EXPECT_LT(recorded, copied);
}

TEST(Recorder, writes_where_another_process_reads) {
  const auto slot = std::make_unique<tessera::launch::RankSlot>();
  tessera::launch::clear(*slot);
  Recorder recorder(*slot);
  const Entry entry = begun(recorder, entry_of(Op::all_reduce, 1000, 4));
  ASSERT_EQ(tessera::launch::last_entries(*slot).size(), 1u);
  recorder.blocked(entry, 5);
  recorder.finish(entry, Status::done, 7, 20);
  EXPECT_EQ(slot->comm_ns, 12);
  EXPECT_EQ(slot->progress, 1u);
  EXPECT_EQ(tessera::launch::entry_of(*slot, entry.id)->waited_ns, 12);
  EXPECT_NEAR(recorder.totals().at(0).seconds_in_flight, 20e-9, 1e-12);
  recorder.moved(entry, 4000);
  EXPECT_EQ(recorder.totals().at(0).moved_bytes, 4000);
  EXPECT_EQ(recorder.totals().at(0).wire_bytes, 1500);
}

TEST(Recorder, sums_per_group_and_operation) {
  const auto slot = std::make_unique<tessera::launch::RankSlot>();
  tessera::launch::clear(*slot);
  Recorder recorder(*slot);
  for (int i = 0; i < 3; ++i)
    recorder.finish(begun(recorder, entry_of(Op::all_reduce, 100, 2, "tp 4")), Status::done, 1'000'000'000);
  recorder.finish(begun(recorder, entry_of(Op::all_gather, 10, 2, "dp_shard-cp 1")), Status::done, 0);
  recorder.finish(begun(recorder, entry_of(Op::all_gather, 1, 2, "tp 4")), Status::done, 0);
  const auto rows = recorder.totals();
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].group, "tp 4");
  EXPECT_EQ(rows[0].op, Op::all_reduce);
  EXPECT_EQ(rows[0].count, 3u);
  EXPECT_EQ(rows[0].payload_bytes, 300);
  EXPECT_DOUBLE_EQ(rows[0].seconds_waited, 3);
  EXPECT_EQ(rows[1].op, Op::all_gather);
  EXPECT_EQ(rows[1].payload_bytes, 1);
  EXPECT_EQ(rows[2].group, "dp_shard-cp 1");
  EXPECT_DOUBLE_EQ(recorder.seconds_waited(), 3);
  EXPECT_STREQ(slot->totals[1].group, "dp_shard-cp 1") << "where tessera top reads";
}

TEST(Recorder, groups_beyond_the_rows_count_together) {
  Recorder recorder;
  const int groups = static_cast<int>(tessera::launch::RankSlot::totals_size) + 5;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int round = 0; round < 50; ++round)
        for (int i = 0; i < groups; ++i) {
          const std::string name = "group " + std::to_string(i);
          recorder.finish(begun(recorder, entry_of(Op::send, 1, 2, name.c_str())), Status::done, 0);
        }
    });
  for (auto& thread : threads) thread.join();
  const auto rows = recorder.totals();
  ASSERT_EQ(rows.size(), tessera::launch::RankSlot::totals_size);
  EXPECT_EQ(rows.back().group, "other groups");
  EXPECT_EQ(rows.back().count, 4u * 50 * 6);
  for (std::size_t i = 0; i + 1 < rows.size(); ++i) EXPECT_EQ(rows[i].count, 200u) << rows[i].group;
}

TEST(Axis, is_the_groups_name_without_its_first_rank) {
  EXPECT_EQ(axis_of("tp 12"), "tp");
  EXPECT_EQ(axis_of("dp_shard-cp 0"), "dp_shard-cp");
  EXPECT_EQ(axis_of("world"), "world");
  EXPECT_EQ(axis_of("group2"), "group2");
  EXPECT_EQ(axis_of("7"), "7");
  EXPECT_EQ(axis_of(""), "");
}

TEST(Recorder, backends_report_per_thread) {
  EXPECT_EQ(take_moved(), -1);
  report_moved(5);
  report_moved(6);
  std::thread([] { EXPECT_EQ(take_moved(), -1); }).join();
  EXPECT_EQ(take_moved(), 11);
  EXPECT_EQ(take_moved(), -1);
}

TEST(Tag, nests_and_belongs_to_its_thread) {
  EXPECT_EQ(Tag::current(), "");
  {
    const Tag outer("step 1");
    {
      const Tag inner("bucket 2");
      EXPECT_EQ(Tag::current(), "bucket 2");
      std::thread([] { EXPECT_EQ(Tag::current(), ""); }).join();
    }
    EXPECT_EQ(Tag::current(), "step 1");
  }
  EXPECT_EQ(Tag::current(), "");
}

TEST(Describe, says_what_matters) {
  Entry entry = entry_of(Op::broadcast, 4000, 4);
  entry.sequence = 12;
  entry.numel = 1000;
  entry.peer = 0;
  std::string("float32").copy(entry.dtype, 15);
  std::string("world").copy(entry.group, 31);
  std::string("weights").copy(entry.tag, 31);
  EXPECT_EQ(describe(entry), "broadcast #12 of group 'world' (4 ranks, 1000 x float32, root 0, tag 'weights')");
}

}  // namespace
