// Collectives and messages over shared memory on raw memory: sizes around every limit, a mix of arena and ordinary
// buffers, many at once, waits in any order.
#include "shm_ranks.h"

#include <tessera/base/error.h>

#include <gtest/gtest.h>
#include <tests/stopwatch.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

namespace tessera::wire::shm {
namespace {

using launch::Op;
using testing::entry_of;
using testing::Rank;
using testing::run_team;

// A buffer of int32 in the arena, or unaligned outside it.
struct Buffer {
  std::vector<std::int32_t> own;
  std::int32_t* data = nullptr;
  std::size_t n = 0;

  Buffer(Rank& rank, std::size_t count, bool arena, std::int32_t fill) : n(count) {
    if (arena) {
      data = reinterpret_cast<std::int32_t*>(rank.arena(4 * count + 4)) + 1;
    } else {
      own.resize(count + 1);
      data = own.data() + 1;
    }
    std::fill_n(data, n, fill);
  }
  std::byte* bytes() const { return reinterpret_cast<std::byte*>(data); }
};

std::int32_t value(int rank, std::size_t i, int salt) {
  return static_cast<std::int32_t>(
      (i * 7 + static_cast<std::size_t>(rank) * 1001 + static_cast<std::size_t>(salt) * 77) % 10007);
}
void fill(const Buffer& buffer, int rank, int salt) {
  for (std::size_t i = 0; i < buffer.n; ++i) buffer.data[i] = value(rank, i, salt);
}

struct Case {
  Op op;
  std::size_t n;  // elements of the part
  int root, salt;
  unsigned arena;  // bit r: rank r's buffers are in the arena
};

// One collective under test: its buffers and expected results.
struct Trial {
  Case what;
  Rank& rank;
  Buffer input, output;
  std::vector<std::size_t> input_splits, output_splits;
  std::shared_ptr<WorkQueue::Task> task;

  static std::size_t split(int from, int to, std::size_t n) {
    return static_cast<std::size_t>(from + 2 * to) % 5 == 0 ? 0 : n / static_cast<std::size_t>(1 + (from * 3 + to) % 4);
  }
  static std::size_t input_size(const Case& c, const Rank& r) {
    const auto ranks = static_cast<std::size_t>(r.size);
    if (c.op == Op::scatter) return r.rank == c.root ? c.n * ranks : 0;
    if (c.op == Op::reduce_scatter) return c.n * ranks;
    if (c.op == Op::gather || c.op == Op::all_gather) return c.n;
    std::size_t sum = 0;
    if (c.op == Op::all_to_all) {
      for (int q = 0; q < r.size; ++q) sum += split(r.rank, q, c.n);
    }
    return sum;
  }
  static std::size_t output_size(const Case& c, const Rank& r) {
    const auto ranks = static_cast<std::size_t>(r.size);
    if (c.op == Op::gather) return r.rank == c.root ? c.n * ranks : 0;
    if (c.op == Op::all_gather) return c.n * ranks;
    if (c.op == Op::all_to_all) {
      std::size_t sum = 0;
      for (int q = 0; q < r.size; ++q) sum += split(q, r.rank, c.n);
      return sum;
    }
    return c.n;
  }

  Trial(Rank& r, const Case& c)
      : what(c),
        rank(r),
        input(r, input_size(c, r), (c.arena >> r.rank & 1) != 0, 0),
        output(r, output_size(c, r), (c.arena >> r.rank & 1) != 0, -5) {
    fill(input, rank.rank, c.salt);
    if (c.op == Op::broadcast || c.op == Op::reduce || c.op == Op::all_reduce) fill(output, rank.rank, c.salt);
  }

  void start(std::uint64_t sequence) {
    Operation operation;
    const bool reduces = what.op == Op::reduce || what.op == Op::all_reduce || what.op == Op::reduce_scatter;
    operation.entry = entry_of(what.op, sequence, static_cast<std::int64_t>(what.n), what.root, reduces ? "sum" : "");
    if (input.n > 0 || what.op == Op::all_to_all) operation.input = input.bytes();
    operation.output = output.bytes();
    operation.part_bytes = what.op == Op::all_to_all ? 0 : 4 * what.n;
    operation.root = what.root;
    operation.number = kernels::Number::int32;
    if (what.op == Op::all_to_all) {
      for (int q = 0; q < rank.size; ++q) {
        operation.input_splits.push_back(4 * split(rank.rank, q, what.n));
        operation.output_splits.push_back(4 * split(q, rank.rank, what.n));
      }
    }
    task = rank.queue.start(std::move(operation));
  }

  std::int32_t sum(std::size_t i) const {
    std::int32_t total = 0;
    for (int r = 0; r < rank.size; ++r) total += value(r, i, what.salt);
    return total;
  }

  std::vector<std::int32_t> expected() const {
    std::vector<std::int32_t> result(output.n);
    const auto me = static_cast<std::size_t>(rank.rank);
    for (std::size_t i = 0; i < result.size(); ++i) {
      switch (what.op) {
        case Op::broadcast:
          result[i] = value(what.root, i, what.salt);
          break;
        case Op::reduce:
          result[i] = rank.rank == what.root ? sum(i) : value(rank.rank, i, what.salt);
          break;
        case Op::all_reduce:
          result[i] = sum(i);
          break;
        case Op::reduce_scatter:
          result[i] = sum(me * what.n + i);
          break;
        case Op::scatter:
          result[i] = value(what.root, me * what.n + i, what.salt);
          break;
        case Op::gather:
        case Op::all_gather:
          result[i] = value(static_cast<int>(i / what.n), i % what.n, what.salt);
          break;
        default:
          break;
      }
    }
    if (what.op == Op::all_to_all) {
      std::size_t at = 0;
      for (int r = 0; r < rank.size; ++r) {
        std::size_t begin = 0;
        for (int q = 0; q < rank.rank; ++q) begin += split(r, q, what.n);
        for (std::size_t i = 0; i < split(r, rank.rank, what.n); ++i) result[at++] = value(r, begin + i, what.salt);
      }
    }
    return result;
  }

  void check() const {
    const auto wanted = expected();
    const auto wrong = std::mismatch(wanted.begin(), wanted.end(), output.data);
    EXPECT_TRUE(wrong.first == wanted.end())
        << launch::op_name(what.op) << " of " << what.n << " on rank " << rank.rank << " of " << rank.size << ", arena "
        << what.arena << ": element " << wrong.first - wanted.begin() << " is " << *wrong.second << ", expected "
        << *wrong.first;
    for (std::size_t i = 0; i < input.n; ++i)
      ASSERT_EQ(input.data[i], value(rank.rank, i, what.salt)) << "input changed";
  }
};

constexpr Op all_ops[] = {Op::broadcast, Op::reduce,     Op::all_reduce,     Op::scatter,
                          Op::gather,    Op::all_gather, Op::reduce_scatter, Op::all_to_all};

class Teams : public ::testing::TestWithParam<int> {};

TEST_P(Teams, every_operation_at_every_size) {
  const int ranks = GetParam();
  run_team(ranks, [&](Rank& rank) {
    std::uint64_t sequence = 0;
    for (const std::size_t n : {std::size_t{1}, std::size_t{1031}, std::size_t{16385}, std::size_t{200001}}) {
      for (const Op op : all_ops) {
        for (const unsigned arena : {0u, ~0u, 0x55555555u, 1u}) {
          rank.next_arena = rank.segment.arena().data;
          Trial trial(rank, {op, n, static_cast<int>(n) % ranks, static_cast<int>(sequence), arena});
          trial.start(sequence++);
          rank.queue.wait(*trial.task);
          trial.check();
        }
      }
    }
  });
}

// Random sequences, equal on all ranks; each rank waits in its own order, or only for the last one.
TEST_P(Teams, many_at_once) {
  const int ranks = GetParam();
  run_team(ranks, [&](Rank& rank) {
    std::mt19937 same(17), own(static_cast<unsigned>(rank.rank) + 1);
    std::uint64_t sequence = 0;
    for (int round = 0; round < 4; ++round) {
      rank.next_arena = rank.segment.arena().data;
      std::vector<std::unique_ptr<Trial>> trials;
      for (int i = 0; i < 24; ++i) {
        const Op op = all_ops[same() % std::size(all_ops)];
        const std::size_t n = same() % 3 == 0 ? same() % 60000 + 1 : same() % 500 + 1;
        const int root = static_cast<int>(same() % static_cast<unsigned>(ranks));
        trials.push_back(std::make_unique<Trial>(rank, Case{op, n, root, i, static_cast<unsigned>(same())}));
        trials.back()->start(sequence++);
        if (own() % 4 == 0) static_cast<void>(rank.queue.done(*trials[own() % trials.size()]->task));
        if (own() % 9 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 500));
      }
      std::shuffle(trials.begin(), trials.end(), own);
      for (const auto& trial : trials) rank.queue.wait(*trial->task);
      for (const auto& trial : trials) trial->check();
    }
  });
}

TEST_P(Teams, messages_in_every_order) {
  const int ranks = GetParam();
  run_team(ranks, [&](Rank& rank) {
    std::mt19937 own(static_cast<unsigned>(rank.rank) + 5);
    std::uint64_t sequence = 0;
    std::vector<std::unique_ptr<Buffer>> buffers;
    std::vector<std::shared_ptr<Message>> messages;
    const auto post = [&](Op op, int peer, int tag, std::size_t n, bool arena) {
      buffers.push_back(std::make_unique<Buffer>(rank, n, arena, -1));
      if (op == Op::send) fill(*buffers.back(), rank.rank, 100 * peer + tag);
      Operation operation;
      operation.entry = entry_of(op, sequence++, static_cast<std::int64_t>(n), peer);
      operation.output = buffers.back()->bytes();
      operation.part_bytes = 4 * n;
      operation.root = peer;
      operation.tag = tag;
      messages.push_back(rank.queue.start_message(std::move(operation)));
    };
    struct Expected {
      int peer, tag;
      std::size_t at;
    };
    std::vector<Expected> expected;
    // More messages than slots; every rank sends everything before it receives anything.
    std::vector<int> tags(20);
    std::iota(tags.begin(), tags.end(), 0);
    const auto size_of = [](int from, int tag) {
      return static_cast<std::size_t>(1 + (from * 37 + tag * 5003) % 60000);
    };
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer == rank.rank) continue;
      for (const int tag : tags) post(Op::send, peer, tag, size_of(rank.rank, tag), tag % 2 == 0);
    }
    std::shuffle(tags.begin(), tags.end(), own);
    for (const int tag : tags) {
      for (int peer = 0; peer < ranks; ++peer) {
        if (peer == rank.rank) continue;
        expected.push_back({peer, tag, buffers.size()});
        post(Op::recv, peer, tag, size_of(peer, tag), tag % 3 == 0);
      }
    }
    std::shuffle(messages.begin(), messages.end(), own);
    for (const auto& message : messages) rank.queue.wait(*message);
    for (const Expected& e : expected) {
      const Buffer& got = *buffers[e.at];
      for (std::size_t i = 0; i < got.n; ++i) {
        ASSERT_EQ(got.data[i], value(e.peer, i, 100 * rank.rank + e.tag)) << "tag " << e.tag << " from " << e.peer;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Teams, ::testing::Values(2, 3, 5, 8));

// A sum of numbers of very different magnitudes has the same bits as a fold from rank 0 upwards, for any chunking.
TEST(Order, folds_from_rank_zero_whatever_the_size) {
  constexpr int ranks = 4;
  run_team(ranks, [&](Rank& rank) {
    const auto number = [](int r, std::size_t i) {
      return std::ldexp(1.0f + static_cast<float>((i * 37 + static_cast<std::size_t>(r) * 11) % 100) / 97,
                        static_cast<int>((i + static_cast<std::size_t>(r) * 5) % 40) - 20);
    };
    std::uint64_t sequence = 0;
    for (const std::size_t n : {5ul, 1000ul, 70000ul, 300001ul}) {
      for (const bool arena : {false, true}) {
        std::vector<float> own(n);
        float* data = arena ? reinterpret_cast<float*>(rank.arena(4 * n)) : own.data();
        for (std::size_t i = 0; i < n; ++i) data[i] = number(rank.rank, i);
        Operation operation;
        operation.entry = entry_of(Op::all_reduce, sequence++, static_cast<std::int64_t>(n), -1, "sum");
        operation.output = reinterpret_cast<std::byte*>(data);
        operation.part_bytes = 4 * n;
        rank.queue.wait(*rank.queue.start(std::move(operation)));
        for (std::size_t i = 0; i < n; ++i) {
          float sum = number(0, i);
          for (int r = 1; r < ranks; ++r) sum += number(r, i);
          ASSERT_EQ(data[i], sum) << i;
        }
      }
    }
  });
}

// One rank aborts an operation that the others wait for: their waits end at once, with its reason.
TEST(Failing, an_abort_ends_the_waits_of_the_others) {
  std::atomic<int> waiting{0};
  const auto body = [&](Rank& rank) {
    if (rank.rank == 0) {
      while (waiting < 2) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      rank.queue.communicator().fail("the disk is full");
    }
    std::vector<std::int32_t> data(100000, 1);  // too large for one-shot, so the thread runs it
    Operation operation;
    operation.entry = entry_of(rank.rank == 2 ? Op::recv : Op::all_reduce, 0, 100000, rank.rank == 2 ? 0 : -1, "sum");
    operation.output = reinterpret_cast<std::byte*>(data.data());
    operation.part_bytes = 4 * data.size();
    operation.root = 0;
    operation.number = kernels::Number::int32;
    const tessera::testing::Stopwatch watch;
    try {
      ++waiting;
      if (rank.rank == 2) {
        rank.queue.wait(*rank.queue.start_message(std::move(operation)));
      } else {
        rank.queue.wait(*rank.queue.start(std::move(operation)));
      }
      ADD_FAILURE() << "came back";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("the disk is full"), std::string::npos) << error.what();
    }
    EXPECT_LT(watch.seconds(), watch.limit(5)) << "the timeout is ten minutes";
  };
  run_team(3, body, 64, std::chrono::minutes(10));
}

TEST(Failing, other_operations_are_named_on_both_sides) {
  run_team(2, [&](Rank& rank) {
    Buffer buffer(rank, 10, false, 1);
    Operation operation;
    operation.entry =
        entry_of(rank.rank == 0 ? Op::all_reduce : Op::broadcast, 0, 10, rank.rank == 0 ? -1 : 0, "", "here");
    operation.output = buffer.bytes();
    operation.part_bytes = 40;
    operation.root = 0;
    operation.number = kernels::Number::int32;
    try {
      rank.queue.wait(*rank.queue.start(std::move(operation)));
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      const std::string text = error.what();
      for (const char* word : {"all_reduce", "broadcast", "rank 0", "rank 1", "here"}) {
        EXPECT_NE(text.find(word), std::string::npos) << text;
      }
    }
  });
}

TEST(Failing, a_missing_rank_is_a_timeout_that_names_it) {
  run_team(
      2,
      [&](Rank& rank) {
        if (rank.rank == 1) return;
        Buffer buffer(rank, 10, false, 1);
        Operation operation;
        operation.entry = entry_of(Op::all_reduce, 0, 10);
        operation.output = buffer.bytes();
        operation.part_bytes = 40;
        operation.number = kernels::Number::int32;
        try {
          rank.queue.wait(*rank.queue.start(std::move(operation)));
          ADD_FAILURE() << "came back";
        } catch (const Error& error) {
          EXPECT_NE(std::string(error.what()).find("rank 1"), std::string::npos) << error.what();
          EXPECT_NE(std::string(error.what()).find("timeout"), std::string::npos) << error.what();
        }
      },
      64, tessera::testing::patience(std::chrono::milliseconds(300)));
}

}  // namespace
}  // namespace tessera::wire::shm
