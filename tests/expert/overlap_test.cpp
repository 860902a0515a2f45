// Rows travel while others are computed: the order in which chunks are sent and waited for, and how long their transfer
// blocks a rank.
#include <tests/distributed/harness.h>

#include <ATen/ATen.h>

#include <tessera/base/clock.h>
#include <tessera/comm/recorder.h>
#include <tessera/nn/moe/router.h>
#include <tessera/parallel/expert/experts.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace {

using namespace tessera;
using namespace tessera::testing;

// Four experts on each of two ranks make four chunks; a chunk's products take many times as long as its transfer.
constexpr std::int64_t C = 256, F = 512, E = 8, k = 2, N = 512;

struct Times {
  std::int64_t begin, end;
};

/// Transfers of rows since `first`, in the order in which they began.
std::vector<comm::Entry> journeys(std::uint64_t first, const char* tag) {
  std::vector<comm::Entry> found;
  for (const comm::Entry& entry : comm::recorder().last())
    if (entry.id >= first && entry.op == comm::Op::all_to_all && std::strcmp(entry.tag, tag) == 0)
      found.push_back(entry);
  return found;
}
std::uint64_t next_entry() {
  const std::vector<comm::Entry> last = comm::recorder().last(1);
  return last.empty() ? 0 : last.back().id + 1;
}

/// All of `out` are sent before the first is waited for, and each result is sent back while the next chunks are still
/// in flight.
void expect_overlap(const std::vector<comm::Entry>& out, const std::vector<comm::Entry>& back, const char* pass) {
  ASSERT_EQ(out.size(), 4u) << pass;
  ASSERT_EQ(back.size(), 4u) << pass;
  for (std::size_t j = 0; j < 4; ++j) {
    EXPECT_LT(out[j].start_ns, out[0].end_ns)
        << pass << ": chunk " << j << " was sent only after the first had arrived";
    EXPECT_GT(back[j].start_ns, out[j].end_ns) << pass << ": chunk " << j;
    if (j + 1 == 4) continue;
    EXPECT_GT(out[j + 1].end_ns, back[j].start_ns) << pass << ": chunk " << j + 1 << " is waited for too early";
    EXPECT_GT(back[j].end_ns, back[3].start_ns) << pass << ": results of chunk " << j << " are waited for too early";
  }
}

/// 1 - waited / in flight.
double hidden(const std::vector<comm::Entry>& entries) {
  double waited = 0, under_way = 0;
  for (const comm::Entry& entry : entries) {
    waited += static_cast<double>(entry.waited_ns);
    under_way += static_cast<double>(entry.end_ns - entry.start_ns);
  }
  return 1 - waited / under_way;
}

TEST(ExpertOverlap, rows_travel_while_others_are_computed) {
  const auto outcomes = run_ranks(2, [](comm::World& world) {
    const comm::Group& ep = world.group();
    at::manual_seed(3);
    const layout::Range own = own_experts(E, ep);
    nn::ExpertWeights weights;
    weights.first = own.begin;
    weights.total = E;
    const auto draw = [](at::IntArrayRef sizes) { return (at::randn(sizes) * 0.1).requires_grad_(); };
    for (std::int64_t e = own.begin; e < own.end; ++e) {
      weights.gate.push_back(draw({F, C}));
      weights.up.push_back(draw({F, C}));
      weights.down.push_back(draw({C, F}));
    }
    const at::Tensor x = at::randn({N, C}).requires_grad_(), dense = at::randn({F, C});
    const nn::ExpertsFunction function = expert_parallel(ep);
    std::vector<double> shares;
    for (int round = 0; round < 5; ++round) {
      Times shared{};
      const nn::Routing routing = nn::route(at::randn({N, E}).requires_grad_(), {.experts = E, .top_k = k});
      const std::uint64_t forward = next_entry();
      const at::Tensor y = function(x, routing, weights, [&] {
        shared.begin = monotonic_ns();
        at::linear(x.detach(), dense);
        shared.end = monotonic_ns();
      });
      const auto out = journeys(forward, "tokens to experts"), home = journeys(forward, "results of experts");
      expect_overlap(out, home, "forward");
      EXPECT_LT(out.back().start_ns, shared.begin) << "the shared expert was computed before rows were sent";
      EXPECT_GT(out.front().end_ns, shared.end) << "rows were waited for before the shared expert was computed";
      const std::uint64_t backward = next_entry();
      y.sum().backward();
      auto of_results = journeys(backward, "results of experts"), of_rows = journeys(backward, "tokens to experts");
      expect_overlap(of_results, of_rows, "backward");
      std::vector<comm::Entry> all = out;
      for (const auto& more : {home, of_results, of_rows}) all.insert(all.end(), more.begin(), more.end());
      shares.push_back(hidden(all));
    }
    std::sort(shares.begin(), shares.end());
    // Take the best round: in others, another process may have had the processor.
    post(concat("rank ", ep.rank(), ": ", shares.back(), " of the time under way holds nobody up"));
    EXPECT_GT(shares.back(), 0.5);
  });
  for (const RankOutcome& outcome : outcomes)
    for (const std::string& line : outcome.posted) std::printf("  %s\n", line.c_str());
}

}  // namespace
