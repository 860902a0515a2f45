// All tokens of all ranks go to one rank's experts: this works, and the bytes kept for backward match
// docs/parallelism.md; with a capacity they equal those of an even load.
#include <tests/distributed/harness.h>

#include <ATen/ATen.h>

#include <tessera/nn/moe/capacity.h>
#include <tessera/nn/moe/router.h>
#include <tessera/parallel/autograd/saved_tensors.h>
#include <tessera/parallel/expert/experts.h>

namespace {

using namespace tessera;
using namespace tessera::testing;

constexpr std::int64_t C = 64, F = 48, E = 4, k = 2, N = 256;

/// Counts the tensors that autograd saves, without changing them.
struct Counting final : parallel::SavedTensorPolicy {
  std::unique_ptr<parallel::PackedTensor> pack(const at::Tensor& tensor) override {
    kept += static_cast<std::int64_t>(tensor.nbytes());
    return nullptr;
  }
  std::int64_t kept = 0;
};

/// Tokens that all choose expert 0, then expert 1; this rank has `own` of E.
nn::Routing all_to_the_first() {
  at::Tensor logits = at::randn({N, E});
  logits.select(1, 0).add_(200);
  logits.select(1, 1).add_(100);
  return nn::route(logits.requires_grad_(), {.experts = E, .top_k = k, .softmax_after_top_k = true});
}

TEST(ExpertImbalance, memory_is_within_the_stated_bound) {
  for (const double factor : {0.0, 1.0})
    run_ranks(2, [&](comm::World& world) {
      const comm::Group& ep = world.group();
      at::manual_seed(3 + ep.rank());
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
      const at::Tensor x = at::randn({N, C}).requires_grad_();
      nn::Routing routing = all_to_the_first();
      if (factor > 0) {
        const nn::Limited limited =
            nn::within_capacity(routing, E, nn::expert_capacity(N, k, E, factor), nn::DropBy::probability);
        EXPECT_EQ(limited.dropped, N * k - 2 * (N * k / E));
        routing = limited.routing;
      }
      const auto counting = std::make_shared<Counting>();
      at::Tensor y;
      {
        const parallel::SavedTensors scope(counting);
        y = expert_parallel(ep)(x, routing, weights, {});
      }
      const std::int64_t most = factor > 0 ? N * k : ep.size() * N * k;  // most rows that can arrive
      const std::int64_t rows = ep.rank() == 0 ? most : 0, slots = factor > 0 ? N * k / 2 : N * k;
      const std::int64_t floats = 4 * (rows * (C + 2 * F) + slots * C), indices = 16 * rows + 40 * N * k;
      EXPECT_GE(counting->kept, floats) << "rank " << ep.rank() << ", capacity " << factor;
      EXPECT_LE(counting->kept, floats + indices) << "rank " << ep.rank() << ", capacity " << factor;
      y.square().sum().backward();
      EXPECT_TRUE(at::isfinite(x.grad()).all().item<bool>());
      EXPECT_EQ(weights.gate[0].grad().ne(0).any().item<bool>(), ep.rank() == 0);
    });
}

}  // namespace
