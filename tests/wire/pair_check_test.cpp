// Compares the collectives of two simulated ranks.
#include <gtest/gtest.h>

#include <tessera/wire/neighbours.h>

#include <string>
#include <vector>

namespace {

using namespace tessera::wire;
using tessera::launch::Entry;
using tessera::launch::Op;
using tessera::launch::RankSlot;
using tessera::launch::RankState;

Entry entry(std::uint64_t sequence, std::uint64_t fingerprint = 1, Op op = Op::all_reduce, std::uint32_t group = 1,
            int peer = -1) {
  Entry e;
  e.id = sequence;
  e.sequence = sequence;
  e.fingerprint = e.chain = fingerprint;
  e.op = op;
  e.group_id = group;
  e.group_size = 2;
  e.peer = peer;
  tessera::launch::write_text(e.group, "g");
  tessera::launch::write_text(e.tag, "bucket 3");
  return e;
}

Sighting sighting(int rank, std::vector<Entry> entries) {
  Sighting s;
  s.rank = rank;
  s.state = RankState::running;
  s.entries = std::move(entries);
  return s;
}

Sighting waiting(int rank, std::vector<Entry> entries, std::uint64_t pulse) {
  Sighting s = sighting(rank, std::move(entries));
  s.blocked_in = s.entries.back();
  s.blocked_ns = 1'000'000'000;
  s.pulse = pulse;
  return s;
}

PairCheck pair_of_ranks() {
  PairCheck check(0, 1);
  check.add_group(1, {0, 1});
  check.add_group(2, {0, 1});
  return check;
}

bool has(const std::optional<std::string>& text, const std::string& word) {
  return text && text->find(word) != std::string::npos;
}

TEST(PairCheck, equal_ones_are_silent_however_far_apart) {
  PairCheck check = pair_of_ranks();
  for (std::uint64_t i = 0; i < 5000; ++i) {
    EXPECT_FALSE(check.update(sighting(0, {entry(i, i)}),
                              sighting(1, i % 7 == 6 ? std::vector<Entry>{} : std::vector{entry(i, i)})));
  }
  EXPECT_TRUE(check.equal_through(1, 4000));
  EXPECT_FALSE(check.equal_through(1, 5000));
  EXPECT_FALSE(check.equal_through(9, 0));
}

TEST(PairCheck, names_both_sides_and_what_differs) {
  PairCheck check = pair_of_ranks();
  const auto found =
      check.update(sighting(0, {entry(0), entry(1, 5, Op::broadcast)}), sighting(1, {entry(0), entry(1, 6)}));
  for (const char* word :
       {"not the same operation", "rank 0 is in broadcast #1", "rank 1 in all_reduce #1", "'bucket 3'"})
    EXPECT_TRUE(has(found, word)) << word << " not in " << found.value_or("nothing");
}

TEST(PairCheck, a_difference_that_was_missed_is_seen_in_the_chain) {
  PairCheck check = pair_of_ranks();
  Entry mine = entry(7), theirs = entry(7);
  theirs.chain = 99;
  EXPECT_TRUE(has(check.update(sighting(0, {mine}), sighting(1, {theirs})), "before all_reduce #7"));
}

TEST(PairCheck, a_deadlock_over_two_groups_needs_two_looks) {
  PairCheck check = pair_of_ranks();
  const Entry a = entry(0, 1, Op::all_reduce, 1), b = entry(0, 1, Op::all_reduce, 2);
  EXPECT_FALSE(check.update(waiting(0, {a}, 1), waiting(1, {b}, 1)));
  EXPECT_FALSE(check.update(waiting(0, {a}, 2), waiting(1, {b}, 1)));  // the other rank has not been observed again
  EXPECT_TRUE(has(check.update(waiting(0, {a}, 3), waiting(1, {b}, 2)), "wait for each other"));
}

TEST(PairCheck, waiting_for_one_who_computes_is_no_deadlock) {
  PairCheck check = pair_of_ranks();
  for (std::uint64_t pulse = 1; pulse < 20; ++pulse)
    EXPECT_FALSE(check.update(waiting(0, {entry(0)}, pulse), sighting(1, {})));
}

TEST(PairCheck, a_message_on_its_way_is_no_deadlock) {
  PairCheck check = pair_of_ranks();
  const Entry receive = entry(0, 1, Op::recv, 1, 1), send = entry(0, 1, Op::send, 1, 0), sum = entry(0);
  for (std::uint64_t pulse = 1; pulse < 5; ++pulse)
    EXPECT_FALSE(check.update(waiting(0, {receive}, pulse), waiting(1, {send, sum}, pulse)));
  PairCheck nobody = pair_of_ranks();
  const Entry other = entry(0, 1, Op::recv, 1, 0);
  nobody.update(waiting(0, {receive}, 1), waiting(1, {other}, 1));
  EXPECT_TRUE(has(nobody.update(waiting(0, {receive}, 2), waiting(1, {other}, 2)), "recv #0"));
}

// Each rank waits for the first of two posted receives; both messages from the other are in transit.
TEST(PairCheck, receives_that_are_posted_ahead_are_no_deadlock) {
  PairCheck check = pair_of_ranks();
  const auto side = [&](int rank, std::uint64_t pulse) {
    const int other = 1 - rank;
    const std::vector<Entry> entries = {entry(0, 1, Op::send, 1, other), entry(1, 1, Op::recv, 1, other),
                                        entry(2, 1, Op::recv, 1, other)};
    Sighting s = waiting(rank, entries, pulse);
    s.blocked_in = entries[1];
    return s;
  };
  for (std::uint64_t pulse = 1; pulse < 5; ++pulse) EXPECT_FALSE(check.update(side(0, pulse), side(1, pulse)));
  Sighting mine = side(0, 5), theirs = side(1, 5);
  mine.blocked_in = mine.entries[2];
  theirs.blocked_in = theirs.entries[2];
  EXPECT_FALSE(check.update(mine, theirs));
  mine.pulse = theirs.pulse = 6;
  EXPECT_TRUE(has(check.update(mine, theirs), "recv #2"));
}

TEST(PairCheck, one_who_has_left_will_not_come) {
  PairCheck check = pair_of_ranks();
  Sighting gone = sighting(1, {entry(0)});
  gone.state = RankState::leaving;
  EXPECT_FALSE(check.update(waiting(0, {entry(0)}, 1), gone));
  const auto found = check.update(waiting(0, {entry(0), entry(1)}, 2), gone);
  EXPECT_TRUE(has(found, "rank 0 waits in all_reduce #1") && has(found, "rank 1 has left the job") &&
              has(found, "loss times zero"));
}

TEST(PairCheck, entries_of_a_group_that_is_made_later_here_are_kept) {
  PairCheck check(0, 1);
  EXPECT_FALSE(check.update(sighting(0, {}), sighting(1, {entry(0, 5, Op::all_reduce, 3)})));
  check.add_group(3, {0, 1});
  EXPECT_TRUE(check.update(sighting(0, {entry(0, 6, Op::all_reduce, 3)}), sighting(1, {})));
}

TEST(Sighting, survives_the_journey_and_nothing_else_does) {
  Sighting sent = waiting(3, {entry(0), entry(1)}, 77);
  const std::string bytes = encode(sent);
  const auto got = decode(bytes);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->rank, 3);
  EXPECT_EQ(got->pulse, 77u);
  EXPECT_EQ(got->entries.size(), 2u);
  EXPECT_EQ(got->blocked_in->sequence, 1u);
  for (std::size_t n = 0; n < bytes.size(); ++n) EXPECT_FALSE(decode(std::string_view(bytes).substr(0, n)));
  EXPECT_FALSE(decode(bytes + "x"));
  std::string bad = bytes;
  bad[0] = 'x';
  EXPECT_FALSE(decode(bad));
  sent.entries[0].op = static_cast<Op>(200);
  EXPECT_FALSE(decode(encode(sent)));
}

TEST(Neighbours, go_round_about) {
  EXPECT_EQ(neighbour_of(2, {0, 2, 5}), 5);
  EXPECT_EQ(neighbour_of(5, {0, 2, 5}), 0);
  EXPECT_EQ(neighbour_of(4, {4}), 4);
  Comparer comparer(0);
  comparer.add_group(1, {0, 1, 2, 3});
  comparer.add_group(2, {0, 2});
  EXPECT_EQ(comparer.others(), (std::vector<int>{1, 2}));
}

TEST(Neighbours, an_entry_that_is_being_written_is_looked_at_again) {
  const auto slot = std::make_unique<RankSlot>();
  tessera::launch::clear(*slot);
  slot->ring[0] = entry(0);
  slot->ring[2] = entry(2);
  slot->next_entry = 3;
  slot->ring[1].id = ~std::uint64_t{0};
  std::uint64_t cursor = 0;
  EXPECT_EQ(look_at(*slot, 1, cursor).entries.size(), 1u);
  EXPECT_EQ(cursor, 1u);
  slot->ring[1] = entry(1);
  EXPECT_EQ(look_at(*slot, 1, cursor).entries.size(), 2u);
  EXPECT_EQ(cursor, 3u);
}

}  // namespace
