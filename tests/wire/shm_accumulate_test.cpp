// Sums that start from the output (Group::accumulate and accumulate_scatter) over shared memory, on raw memory.
#include "shm_ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace tessera::wire::shm {
namespace {

using launch::Op;
using testing::entry_of;
using testing::Rank;
using testing::run_team;

std::int32_t value(int rank, std::size_t i) {
  return static_cast<std::int32_t>((i * 7 + static_cast<std::size_t>(rank) * 1001) % 10007);
}

class Accumulate : public ::testing::TestWithParam<int> {};

// Adds the sum of all inputs to the output, on every rank or part by part; large ones, in the arena or not.
TEST_P(Accumulate, in_both_forms) {
  const int ranks = GetParam();
  run_team(ranks, [&](Rank& rank) {
    std::uint64_t sequence = 0;
    for (const std::size_t n : {3ul, 16385ul, 150001ul}) {
      for (const Op op : {Op::all_reduce, Op::reduce_scatter}) {
        for (const unsigned arena : {0u, ~0u, 0x55555555u}) {
          rank.next_arena = rank.segment.arena().data;
          const bool shared = (arena >> rank.rank & 1) != 0, parts = op == Op::reduce_scatter;
          const std::size_t whole = parts ? n * static_cast<std::size_t>(ranks) : n;
          std::vector<std::int32_t> own(whole + n);
          auto* input = shared ? reinterpret_cast<std::int32_t*>(rank.arena(4 * whole)) : own.data();
          auto* output = shared ? reinterpret_cast<std::int32_t*>(rank.arena(4 * n)) : own.data() + whole;
          for (std::size_t i = 0; i < whole; ++i) input[i] = value(rank.rank, i);
          std::fill_n(output, n, 5);
          const std::size_t begin = parts ? n * static_cast<std::size_t>(rank.rank) : 0;
          std::vector<std::shared_ptr<WorkQueue::Task>> tasks;
          for (int call = 0; call < 2; ++call) {  // the second call continues from the first one's result
            Operation operation;
            operation.entry = entry_of(op, sequence++, static_cast<std::int64_t>(n), -1, "fold");
            operation.input = reinterpret_cast<const std::byte*>(input);
            operation.output = reinterpret_cast<std::byte*>(output);
            operation.part_bytes = 4 * n;
            operation.number = kernels::Number::int32;
            operation.accumulates = true;
            tasks.push_back(rank.queue.start(std::move(operation)));
          }
          rank.queue.wait(*tasks[1]);
          for (std::size_t i = 0; i < n; ++i) {
            std::int32_t sum = 5;
            for (int r = 0; r < ranks; ++r) sum += 2 * value(r, begin + i);
            ASSERT_EQ(output[i], sum) << launch::op_name(op) << " of " << n << ", arena " << arena << ", " << i;
          }
          for (std::size_t i = 0; i < whole; ++i) ASSERT_EQ(input[i], value(rank.rank, i)) << "the input changed";
        }
      }
    }
  });
}

// Inputs of 16 bits, sums of 32 bits.
TEST_P(Accumulate, into_a_wider_type) {
  const int ranks = GetParam();
  run_team(ranks, [&](Rank& rank) {
    std::uint64_t sequence = 0;
    const auto number = [](int r, std::size_t i) {
      return static_cast<float>((i * 3 + static_cast<std::size_t>(r)) % 100);
    };
    for (const std::size_t n : {7ul, 40001ul, 300007ul}) {
      for (const Op op : {Op::all_reduce, Op::reduce_scatter}) {
        const bool parts = op == Op::reduce_scatter;
        std::vector<std::uint16_t> input(parts ? n * static_cast<std::size_t>(ranks)
                                               : n);  // bf16: the upper half of fp32
        for (std::size_t i = 0; i < input.size(); ++i) {
          const float x = number(rank.rank, i);
          std::uint32_t bits;
          std::memcpy(&bits, &x, sizeof bits);
          input[i] = static_cast<std::uint16_t>(bits >> 16);
        }
        std::vector<float> output(n, 0.25f);
        Operation operation;
        operation.entry = entry_of(op, sequence++, static_cast<std::int64_t>(n), -1, "fold");
        operation.input = reinterpret_cast<const std::byte*>(input.data());
        operation.output = reinterpret_cast<std::byte*>(output.data());
        operation.part_bytes = 2 * n;
        operation.number = kernels::Number::bf16;
        operation.accumulates = true;
        rank.queue.wait(*rank.queue.start(std::move(operation)));
        const std::size_t begin = parts ? n * static_cast<std::size_t>(rank.rank) : 0;
        for (std::size_t i = 0; i < n; ++i) {
          float sum = 0.25f;
          for (int r = 0; r < ranks; ++r) sum += number(r, begin + i);
          ASSERT_EQ(output[i], sum) << launch::op_name(op) << " of " << n << ", " << i;
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Accumulate, ::testing::Values(2, 3, 5, 8));

}  // namespace
}  // namespace tessera::wire::shm
