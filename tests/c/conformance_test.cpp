// Every operation x {2, 3, 4 ranks} x dtype x transport, compared with its definition.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "elements.h"
#include "processes.h"

namespace tessera::testing {
namespace {

using Counts = std::vector<std::int64_t>;

struct Case {
  int ranks;
  const char* transport;
};
std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  return std::string(info.param.transport) + std::to_string(info.param.ranks);
}
class Conformance : public ::testing::TestWithParam<Case> {
 protected:
  void run(const std::function<void(Rank&)>& body) const {
    run_processes(GetParam().ranks, GetParam().transport, body);
  }
};
// Under mpirun (tests/scripts/mpi.sh) this process is one rank; otherwise the tests start their own.
std::vector<Case> cases() {
  const int ranks = ranks_of_mpirun();
  if (ranks > 0) return {Case{ranks, "mpi"}};
  return {Case{1, "auto"}, Case{2, "shm"}, Case{3, "shm"}, Case{4, "shm"},
          Case{2, "tcp"},  Case{3, "tcp"}, Case{4, "tcp"}};
}
INSTANTIATE_TEST_SUITE_P(All, Conformance, ::testing::ValuesIn(cases()), name_of);

std::string place(const char* what, tessera_dtype dtype, std::int64_t n, const char* more = "") {
  return std::string(what) + " of " + std::to_string(n) + " " + tessera_dtype_name(dtype) + " " + more;
}

std::vector<Value> elements(tessera_dtype dtype, int rank, std::int64_t begin, std::int64_t n) {
  std::vector<Value> values;
  for (std::int64_t i = begin; i < begin + n; ++i) values.push_back(element(dtype, rank, i));
  return values;
}
Bytes given(tessera_dtype dtype, int rank, std::int64_t begin, std::int64_t n) {
  return bytes_of(dtype, elements(dtype, rank, begin, n));
}
Bytes reduced(tessera_dtype dtype, tessera_op op, int ranks, std::int64_t begin, std::int64_t n, double scale = 1) {
  std::vector<Value> results;
  for (std::int64_t i = begin; i < begin + n; ++i) {
    std::vector<Value> values;
    for (int r = 0; r < ranks; ++r) values.push_back(element(dtype, r, i));
    results.push_back(combined(dtype, op, values) * scale);
  }
  return bytes_of(dtype, results);
}
Bytes room(tessera_dtype dtype, std::int64_t n) {
  return Bytes(static_cast<std::size_t>(n * tessera_dtype_size(dtype)), 0xaa);
}
// An average of three is inexact in the reference, too.
bool equal(tessera_dtype dtype, tessera_op op, int ranks, const Bytes& a, const Bytes& b) {
  const bool inexact = op == TESSERA_AVERAGE && (ranks & (ranks - 1)) != 0;
  const bool signed_zeros = op == TESSERA_PRODUCT && is_complex(dtype);  // results depend on the order of operands
  if (!signed_zeros && (!inexact || dtype == TESSERA_FLOAT16 || dtype == TESSERA_BFLOAT16)) return a == b;
  const auto close = [&]<class T>(T) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); i += sizeof(T)) {
      T x, y;
      std::memcpy(&x, a.data() + i, sizeof x);
      std::memcpy(&y, b.data() + i, sizeof y);
      if (std::abs(x - y) > 4 * std::numeric_limits<T>::epsilon()) return false;
    }
    return true;
  };
  return dtype == TESSERA_FLOAT32 || dtype == TESSERA_COMPLEX64 ? close(0.0f) : close(0.0);
}

TEST_P(Conformance, Reductions) {
  run([](Rank& me) {
    for (tessera_dtype dtype = 0; dtype <= TESSERA_COMPLEX128; ++dtype) {
      for (tessera_op op = 0; op <= TESSERA_BXOR; ++op) {
        Counts sizes{1, 333};
        if (op == TESSERA_SUM) sizes = {0, 5, 1'007};
        const bool all_ways = dtype == TESSERA_FLOAT32 || dtype == TESSERA_INT16 || dtype == TESSERA_COMPLEX128;
        if (op == TESSERA_SUM && all_ways) sizes.push_back(20'007);  // 40 KB and more: staged in chunks
        for (const std::int64_t n : sizes) {
          const std::string what = place("all_reduce", dtype, n, tessera_op_name(op));
          const Bytes input = given(dtype, me.rank, 0, n);
          Bytes output = room(dtype, n);
          const auto status = tessera_all_reduce(me.group, input.data(), output.data(), n, dtype, op, nullptr, nullptr);
          if (!supports(dtype, op)) {
            const std::string text = me.status(status, TESSERA_INVALID, what);
            me.expect(text == std::string(tessera_op_name(op)) + " is not for " + tessera_dtype_name(dtype) + ".",
                      text);
            continue;
          }
          me.ok(status, what);
          me.expect(equal(dtype, op, me.size, output, reduced(dtype, op, me.size, 0, n)), what);
          me.expect(input == given(dtype, me.rank, 0, n), what + ": the input changed");

          output = input;
          me.ok(tessera_all_reduce(me.group, output.data(), output.data(), n, dtype, op, nullptr, nullptr), what);
          me.expect(equal(dtype, op, me.size, output, reduced(dtype, op, me.size, 0, n)), what + " in place");

          const int root = me.size - 1;
          output = room(dtype, n);
          const Bytes untouched = output;
          const std::string at_root = place("reduce", dtype, n, tessera_op_name(op));
          me.ok(tessera_reduce(me.group, input.data(), output.data(), n, dtype, op, root, nullptr, nullptr), at_root);
          me.expect(me.rank == root ? equal(dtype, op, me.size, output, reduced(dtype, op, me.size, 0, n))
                                    : output == untouched,
                    at_root);
          me.expect(input == given(dtype, me.rank, 0, n), at_root + ": the input changed");

          const std::string scattered = place("reduce_scatter", dtype, n, tessera_op_name(op));
          const Bytes whole = given(dtype, me.rank, 0, n * me.size);
          output = room(dtype, n);
          me.ok(tessera_reduce_scatter(me.group, whole.data(), output.data(), n, dtype, op, nullptr, nullptr),
                scattered);
          me.expect(equal(dtype, op, me.size, output, reduced(dtype, op, me.size, n * me.rank, n)), scattered);
          me.expect(whole == given(dtype, me.rank, 0, n * me.size), scattered + ": the input changed");
          Bytes in_place = whole;  // this rank's part of the input is the output
          auto* const own = in_place.data() + output.size() * static_cast<std::size_t>(me.rank);
          me.ok(tessera_reduce_scatter(me.group, in_place.data(), own, n, dtype, op, nullptr, nullptr), scattered);
          me.expect(
              equal(dtype, op, me.size, Bytes(own, own + output.size()), reduced(dtype, op, me.size, n * me.rank, n)),
              scattered + " in place");
        }
      }
    }
  });
}

TEST_P(Conformance, WhatOnlyMoves) {
  run([](Rank& me) {
    const int R = me.size, last = me.size - 1;
    for (tessera_dtype dtype = 0; dtype <= TESSERA_COMPLEX128; ++dtype) {
      for (const std::int64_t n : {std::int64_t{0}, std::int64_t{3}, std::int64_t{101}, std::int64_t{20'001}}) {
        if (n > 1000 && dtype != TESSERA_FLOAT32) continue;
        const Bytes mine = given(dtype, me.rank, 0, n), all = given(dtype, me.rank, 0, n * R);
        for (const int root : {0, last}) {
          Bytes data = me.rank == root ? mine : room(dtype, n);
          me.ok(tessera_broadcast(me.group, data.data(), n, dtype, root, nullptr, nullptr), "broadcast");
          me.expect(data == given(dtype, root, 0, n), place("broadcast", dtype, n));

          Bytes part = room(dtype, n);
          me.ok(tessera_scatter(me.group, me.rank == root ? all.data() : nullptr, part.data(), n, dtype, root, nullptr,
                                nullptr),
                "scatter");
          me.expect(part == given(dtype, root, n * me.rank, n), place("scatter", dtype, n));
          if (n > 0) {
            Bytes parts = all;  // the root's own part stays where it is
            auto* const own = parts.data() + part.size() * static_cast<std::size_t>(me.rank);
            me.ok(tessera_scatter(me.group, me.rank == root ? parts.data() : nullptr,
                                  me.rank == root ? own : part.data(), n, dtype, root, nullptr, nullptr),
                  "scatter in place");
            me.expect(parts == all && part == given(dtype, root, n * me.rank, n),
                      place("scatter", dtype, n, "in place"));
          }

          Bytes whole = room(dtype, n * R);
          me.ok(tessera_gather(me.group, mine.data(), me.rank == root ? whole.data() : nullptr, n, dtype, root, nullptr,
                               nullptr),
                "gather");
          for (int r = 0; r < R && me.rank == root; ++r) {
            const auto at = static_cast<std::ptrdiff_t>(mine.size()) * r;
            me.expect(Bytes(whole.begin() + at, whole.begin() + at + static_cast<std::ptrdiff_t>(mine.size())) ==
                          given(dtype, r, 0, n),
                      place("gather", dtype, n));
          }
          if (n > 0) {
            Bytes parts = room(dtype, n * R);
            auto* const own = parts.data() + mine.size() * static_cast<std::size_t>(me.rank);
            std::copy(mine.begin(), mine.end(), own);
            me.ok(tessera_gather(me.group, own, me.rank == root ? parts.data() : nullptr, n, dtype, root, nullptr,
                                 nullptr),
                  "gather in place");
            me.expect(me.rank != root || parts == whole, place("gather", dtype, n, "in place"));
          }
        }
        Bytes gathered = room(dtype, n * R), expected, exchanged = room(dtype, n * R), exchange;
        for (int r = 0; r < R; ++r) {
          const Bytes theirs = given(dtype, r, 0, n), part = given(dtype, r, n * me.rank, n);
          expected.insert(expected.end(), theirs.begin(), theirs.end());
          exchange.insert(exchange.end(), part.begin(), part.end());
        }
        me.ok(tessera_all_gather(me.group, mine.data(), gathered.data(), n, dtype, nullptr, nullptr), "all_gather");
        me.expect(gathered == expected, place("all_gather", dtype, n));
        Bytes in_place = room(dtype, n * R);
        std::copy(mine.begin(), mine.end(), in_place.begin() + static_cast<std::ptrdiff_t>(mine.size()) * me.rank);
        me.ok(tessera_all_gather(me.group, in_place.data() + mine.size() * static_cast<std::size_t>(me.rank),
                                 in_place.data(), n, dtype, nullptr, nullptr),
              "all_gather in place");
        me.expect(in_place == expected, place("all_gather", dtype, n, "in place"));
        me.ok(tessera_all_to_all(me.group, all.data(), exchanged.data(), n, dtype, nullptr, nullptr), "all_to_all");
        me.expect(exchanged == exchange, place("all_to_all", dtype, n));
        exchanged = all;
        me.ok(tessera_all_to_all(me.group, exchanged.data(), exchanged.data(), n, dtype, nullptr, nullptr),
              "all_to_all");
        me.expect(exchanged == exchange, place("all_to_all", dtype, n, "in place"));
      }
    }
    me.ok(tessera_barrier(me.group, nullptr, nullptr), "barrier");
  });
}

TEST_P(Conformance, UnevenParts) {
  run([](Rank& me) {
    const int R = me.size;
    for (const tessera_dtype dtype : {TESSERA_FLOAT32, TESSERA_BFLOAT16, TESSERA_INT16}) {
      for (const std::int64_t unit : {1, 5'001}) {
        Counts counts, from, to;
        for (int r = 0; r < R; ++r) {
          counts.push_back(r == 1 ? 0 : (r + 1) * unit);
          to.push_back((me.rank + 2 * r) % 3 * unit);
          from.push_back((r + 2 * me.rank) % 3 * unit);
        }
        const std::int64_t own = counts[static_cast<std::size_t>(me.rank)];
        const auto sum = [](const Counts& all) { return std::accumulate(all.begin(), all.end(), std::int64_t{0}); };
        Bytes output = room(dtype, sum(counts)), expected;
        for (int r = 0; r < R; ++r) {
          const Bytes theirs = given(dtype, r, 0, counts[static_cast<std::size_t>(r)]);
          expected.insert(expected.end(), theirs.begin(), theirs.end());
        }
        const Bytes mine = given(dtype, me.rank, 0, own);
        me.ok(tessera_all_gather_v(me.group, mine.data(), output.data(), counts.data(), dtype, nullptr, nullptr), "v");
        me.expect(output == expected, place("all_gather_v", dtype, unit));

        output = room(dtype, own);
        const std::int64_t before = std::accumulate(counts.begin(), counts.begin() + me.rank, std::int64_t{0});
        const Bytes whole = given(dtype, me.rank, 0, sum(counts));
        me.ok(tessera_reduce_scatter_v(me.group, whole.data(), output.data(), counts.data(), dtype, TESSERA_SUM,
                                       nullptr, nullptr),
              "reduce_scatter_v");
        me.expect(output == reduced(dtype, TESSERA_SUM, R, before, own), place("reduce_scatter_v", dtype, unit));
        me.expect(whole == given(dtype, me.rank, 0, sum(counts)), "reduce_scatter_v: the input changed");

        const Bytes sent = given(dtype, me.rank, 0, sum(to));
        output = room(dtype, sum(from));
        expected.clear();
        for (int r = 0; r < R; ++r) {
          std::int64_t at = 0;
          for (int q = 0; q < me.rank; ++q) at += (r + 2 * q) % 3 * unit;
          const Bytes part = given(dtype, r, at, from[static_cast<std::size_t>(r)]);
          expected.insert(expected.end(), part.begin(), part.end());
        }
        me.ok(
            tessera_all_to_all_v(me.group, sent.data(), to.data(), output.data(), from.data(), dtype, nullptr, nullptr),
            "all_to_all_v");
        me.expect(output == expected, place("all_to_all_v", dtype, unit));
      }
    }
  });
}

TEST_P(Conformance, Messages) {
  run([](Rank& me) {
    if (me.size == 1) {
      int number = 0;
      const std::string text = me.status(tessera_send(me.group, &number, 1, TESSERA_INT32, 0, 0, nullptr, nullptr),
                                         TESSERA_INVALID, "send to oneself");
      me.expect(text == "send: a rank cannot send a message to itself.", text);
      return;
    }
    const int next = (me.rank + 1) % me.size, before = (me.rank + me.size - 1) % me.size;
    // Every rank sends first: large messages cross.
    for (const std::int64_t n : {0, 1, 300'003}) {
      const Bytes out = given(TESSERA_UINT8, me.rank, 0, n);
      Bytes in = room(TESSERA_UINT8, n);
      tessera_work send = 0, recv = 0;
      me.ok(tessera_send(me.group, out.data(), n, TESSERA_UINT8, next, 3, nullptr, &send), "send");
      me.ok(tessera_recv(me.group, in.data(), n, TESSERA_UINT8, before, 3, nullptr, nullptr, &recv), "recv");
      me.ok(tessera_work_wait(send, -1, nullptr), "wait for the send");
      me.ok(tessera_work_wait(recv, -1, nullptr), "wait for the recv");
      int source = -1;
      me.ok(tessera_work_source(recv, &source), "source");
      me.expect(source == before && in == given(TESSERA_UINT8, before, 0, n), "message of " + std::to_string(n));
      me.ok(tessera_work_free(send), "free");
      me.ok(tessera_work_free(recv), "free");
    }
    // Receives by tag, in a different order than sent, and from any source.
    if (me.rank == 0) {
      std::vector<int> seen(static_cast<std::size_t>(me.size));
      for (int i = 1; i < me.size; ++i) {
        std::int32_t number = 0, from = -1;
        me.ok(tessera_recv(me.group, &number, 1, TESSERA_INT32, TESSERA_ANY_SOURCE, 8, &from, nullptr, nullptr), "any");
        me.expect(from > 0 && number == 100 + from, "from anybody");
        if (from > 0) ++seen[static_cast<std::size_t>(from)];
      }
      for (int r = 1; r < me.size; ++r) {
        me.expect(seen[static_cast<std::size_t>(r)] == 1, "each rank once");
        std::int32_t first = 0, second = 0;
        me.ok(tessera_recv(me.group, &second, 1, TESSERA_INT32, r, 7, nullptr, nullptr, nullptr), "tag 7");
        me.ok(tessera_recv(me.group, &first, 1, TESSERA_INT32, r, 7, nullptr, nullptr, nullptr), "tag 7");
        me.expect(second == r && first == 10 + r, "messages of a tag stay in order");
      }
    } else {
      const std::int32_t numbers[] = {me.rank, 10 + me.rank, 100 + me.rank};
      tessera_work works[3];
      for (int i = 0; i < 3; ++i) {
        me.ok(tessera_send(me.group, &numbers[i], 1, TESSERA_INT32, 0, i < 2 ? 7 : 8, nullptr, &works[i]), "send");
      }
      for (const tessera_work work : works) me.ok(tessera_work_wait(work, 30'000, nullptr), "wait");
    }
    me.ok(tessera_barrier(me.group, nullptr, nullptr), "barrier");
  });
}

TEST_P(Conformance, Scales) {
  run([](Rank& me) {
    for (const tessera_dtype dtype :
         {TESSERA_FLOAT16, TESSERA_BFLOAT16, TESSERA_FLOAT32, TESSERA_FLOAT64, TESSERA_COMPLEX64, TESSERA_COMPLEX128}) {
      const std::int64_t n = 77;
      tessera_call call{};
      call.size = sizeof call;
      call.prescale = 0.5;
      call.postscale = 4;
      const Bytes input = given(dtype, me.rank, 0, n), whole = given(dtype, me.rank, 0, n * me.size);
      Bytes output = room(dtype, n);
      me.ok(tessera_all_reduce(me.group, input.data(), output.data(), n, dtype, TESSERA_SUM, &call, nullptr), "scaled");
      me.expect(output == reduced(dtype, TESSERA_SUM, me.size, 0, n, 2), place("scaled all_reduce", dtype, n));
      output = room(dtype, n);
      me.ok(tessera_reduce(me.group, input.data(), output.data(), n, dtype, TESSERA_SUM, 0, &call, nullptr), "scaled");
      me.expect(me.rank != 0 || output == reduced(dtype, TESSERA_SUM, me.size, 0, n, 2),
                place("scaled reduce", dtype, n));
      output = room(dtype, n);
      me.ok(tessera_reduce_scatter(me.group, whole.data(), output.data(), n, dtype, TESSERA_SUM, &call, nullptr),
            "scaled");
      me.expect(output == reduced(dtype, TESSERA_SUM, me.size, n * me.rank, n, 2),
                place("scaled reduce_scatter", dtype, n));
      me.expect(input == given(dtype, me.rank, 0, n) && whole == given(dtype, me.rank, 0, n * me.size),
                "scaled: the input changed");
    }
  });
}

// 256 + 1 + 1 + ... in bf16 would stay 256 if every sum were rounded.
TEST_P(Conformance, ShortNumbersAreRoundedOnce) {
  run([](Rank& me) {
    for (const std::int64_t n : {8, 50'000}) {
      const std::vector<Value> values(static_cast<std::size_t>(n), me.rank == 0 ? 256.0 : 1.0);
      Bytes numbers = bytes_of(TESSERA_BFLOAT16, values);
      me.ok(tessera_all_reduce(me.group, numbers.data(), numbers.data(), n, TESSERA_BFLOAT16, TESSERA_SUM, nullptr,
                               nullptr),
            "all_reduce");
      const std::vector<Value> sums(static_cast<std::size_t>(n), 255.0 + me.size);
      me.expect(numbers == bytes_of(TESSERA_BFLOAT16, sums), "rounded more than once");
    }
  });
}

TEST_P(Conformance, ManyAtOnceAndBatches) {
  run([](Rank& me) {
    constexpr int count = 40;
    std::vector<std::vector<float>> numbers(count);
    std::vector<tessera_work> works(count);
    const auto fill = [&] {
      for (int k = 0; k < count; ++k) {
        numbers[static_cast<std::size_t>(k)].assign(static_cast<std::size_t>(k % 5 == 0 ? 30'000 : k),
                                                    static_cast<float>(k + me.rank));
      }
    };
    const auto check = [&](const char* what) {
      for (int k = 0; k < count; ++k) {
        const auto sum = static_cast<float>(k * me.size + me.size * (me.size - 1) / 2);
        for (const float x : numbers[static_cast<std::size_t>(k)]) {
          if (x != sum) return me.expect(false, std::string(what) + " number " + std::to_string(k));
        }
      }
    };
    fill();
    for (int k = 0; k < count; ++k) {
      auto& data = numbers[static_cast<std::size_t>(k)];
      me.ok(tessera_all_reduce(me.group, data.data(), data.data(), static_cast<std::int64_t>(data.size()),
                               TESSERA_FLOAT32, TESSERA_SUM, nullptr, &works[static_cast<std::size_t>(k)]),
            "start");
    }
    for (int k = count; k-- > 0;) me.ok(tessera_work_wait(works[static_cast<std::size_t>(k)], -1, nullptr), "wait");
    for (const tessera_work work : works) me.ok(tessera_work_free(work), "free");
    check("out of order");

    fill();
    me.ok(tessera_batch_begin(me.group), "begin");
    for (auto& data : numbers) {
      me.ok(tessera_all_reduce(me.group, data.data(), data.data(), static_cast<std::int64_t>(data.size()),
                               TESSERA_FLOAT32, TESSERA_SUM, nullptr, nullptr),
            "collect");
    }
    std::int32_t got = -1, mine = me.rank;
    if (me.size > 1) {
      me.ok(tessera_send(me.group, &mine, 1, TESSERA_INT32, (me.rank + 1) % me.size, 0, nullptr, nullptr), "send");
      me.ok(tessera_recv(me.group, &got, 1, TESSERA_INT32, (me.rank + me.size - 1) % me.size, 0, nullptr, nullptr,
                         nullptr),
            "recv");
    }
    tessera_work work = 0;
    me.ok(tessera_batch_end(me.group, &work), "end");
    std::int32_t ended = 0;
    while (ended == 0) me.ok(tessera_work_test(work, &ended), "test");
    me.ok(tessera_work_status(work), "status");
    me.ok(tessera_work_free(work), "free");
    check("batch");
    me.expect(me.size == 1 || got == (me.rank + me.size - 1) % me.size, "message of a batch");

    // A handle may be freed before the operation ends: the result still arrives.
    fill();
    for (auto& data : numbers) {
      me.ok(tessera_all_reduce(me.group, data.data(), data.data(), static_cast<std::int64_t>(data.size()),
                               TESSERA_FLOAT32, TESSERA_SUM, nullptr, &work),
            "start");
      me.ok(tessera_work_free(work), "free");
    }
    me.ok(tessera_barrier(me.group, nullptr, nullptr), "barrier");
    check("freed");
  });
}

TEST_P(Conformance, GroupsOfSome) {
  run([](Rank& me) {
    // Even and odd ranks add concurrently, in reverse order.
    tessera_group half = 0;
    me.ok(tessera_group_split(me.group, me.rank % 2, -me.rank, "half", &half), "split");
    std::int32_t size = 0, rank = 0;
    me.ok(tessera_group_size(half, &size), "size");
    me.ok(tessera_group_rank(half, &rank), "rank");
    std::vector<std::int32_t> ranks(8);
    me.ok(tessera_group_ranks(half, ranks.data(), 8), "ranks");
    me.expect(ranks[static_cast<std::size_t>(rank)] == me.rank, "its own place");
    for (int i = 1; i < size; ++i) {
      me.expect(ranks[static_cast<std::size_t>(i)] < ranks[static_cast<std::size_t>(i - 1)], "by key");
    }
    std::int64_t sum = me.rank;
    me.ok(tessera_all_reduce(half, &sum, &sum, 1, TESSERA_INT64, TESSERA_SUM, nullptr, nullptr), "half");
    std::int64_t expected = 0;
    for (int r = me.rank % 2; r < me.size; r += 2) expected += r;
    me.expect(sum == expected, "sum of a half");
    // Called by members only, twice with the same name, while the other ranks do something else.
    if (me.rank < 2 && me.size > 1) {
      const std::int32_t first[] = {1, 0};
      tessera_group one = 0, two = 0;
      me.ok(tessera_group_create(me.world, first, 2, "pair", &one), "create");
      me.ok(tessera_group_create(me.world, first, 2, "pair", &two), "create");
      for (const tessera_group group : {two, one}) {
        std::int32_t number = me.rank;
        me.ok(tessera_broadcast(group, &number, 1, TESSERA_INT32, 0, nullptr, nullptr), "broadcast of a pair");
        me.expect(number == 1, "rank 0 of the pair is rank 1");
      }
      me.ok(tessera_group_destroy(one), "destroy");
      tessera_group found = 0;
      me.ok(tessera_group_find(me.world, "pair", &found), "find");
      me.expect(found == two, "found the one that lives");
    }
    tessera_group none = 1;
    me.ok(tessera_group_split(me.group, me.rank == 0 ? 0 : -1, 0, nullptr, &none), "split");
    me.expect((none != 0) == (me.rank == 0), "no group for colour -1");
    char transport[16];
    if (none != 0) {
      me.ok(tessera_group_transport(none, transport, sizeof transport, nullptr), "transport");
      me.expect(std::string(transport) == "local", transport);
    }
    me.ok(tessera_barrier(me.group, nullptr, nullptr), "barrier");
    me.ok(tessera_shutdown(me.world), "shutdown");
  });
}

}  // namespace
}  // namespace tessera::testing
