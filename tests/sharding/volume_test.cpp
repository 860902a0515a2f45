// Bytes on the wire per step against the formulas of the strategies (M bytes of parameters, W ranks, shard groups of
// G):
//
//   DDP, ZeRO-1, ZeRO-2      2 M (W-1)/W     with k micro-batches: the same; ZeRO-2 (k+1) M (W-1)/W
//   SHARD_GRAD_OP            2 M (W-1)/W     k times
//   ZeRO-3, FULL_SHARD       3 M (W-1)/W     k times; less the first unit of backward, which is still gathered
//   HSDP                     inside a group the same with G; across groups 2 M (W-G)/(G W)
#include <tests/sharding/job.h>

#include <torch/optim/sgd.h>

#include <tessera/comm/recorder.h>

#include <cstdio>

namespace {

using namespace tessera;
using namespace tessera::testing;

constexpr std::int64_t width = 48;

/// `depth` equal layers, each a unit of the same size.
struct Tower : torch::nn::Module {
  std::vector<torch::nn::Linear> layers;
  explicit Tower(int depth) {
    for (int i = 0; i < depth; ++i)
      layers.push_back(register_module(concat("layer", i), torch::nn::Linear(width, width)));
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& layer : layers) x = at::tanh(layer->forward(x));
    return x;
  }
};

struct Volume {
  double all = 0;     ///< bytes this rank sent, by theory
  double across = 0;  ///< bytes sent between replicas
  double m = 0;       ///< bytes of parameters with padding
  double plain = 0;   ///< without
};

/// The volume of one step with k micro-batches, once the order of the units is known.
Volume volume_of_step(comm::World& world, ShardingOptions options, int k, int depth) {
  at::manual_seed(1);
  Tower tower(depth);
  Volume volume;
  for (const at::Tensor& p : tower.parameters()) volume.plain += static_cast<double>(p.nbytes());
  options.wrap = by_class({"Linear"});
  Sharded sharded(tower, fitted(std::move(options)));
  torch::optim::SGD optimizer(sharded.parameters(), 0.01);
  std::uint64_t last_id = 0;
  const auto sent = [] {
    double sum = 0;
    for (const comm::OpTotals& row : comm::recorder().totals()) sum += static_cast<double>(row.wire_bytes);
    return sum;
  };
  for (int step = 0; step < 3; ++step) {
    const double before = sent();
    for (const comm::Entry& entry : comm::recorder().last()) last_id = std::max(last_id, entry.id);
    sharded.zero_grad();
    for (int m = 0; m < k; ++m) {
      std::optional<Sharded::NoSync> pause;
      if (m + 1 < k) pause.emplace(sharded);
      // The input's gradient is required; otherwise the first layer's backward would not need the weight.
      const at::Tensor x = at::full({2, width}, 0.1 * (1 + world.rank() + m)).requires_grad_();
      tower.forward(x).square().mean().backward();
    }
    optimizer.step();
    volume.all = sent() - before;
  }
  if (k == 1) {
    volume.across = 0;
    for (const comm::Entry& entry : comm::recorder().last())
      if (entry.id > last_id && std::string(entry.group).starts_with("dp_replicate"))
        volume.across += static_cast<double>(entry.wire_bytes);
  }
  if (sharded.units().empty()) {
    volume.m = volume.plain;
  } else {
    for (const ShardingUnit& unit : sharded.units()) volume.m += static_cast<double>(unit.padded) * 4;
  }
  return volume;
}

void expect_volume(comm::World& world, const char* what, double got, double formula, double plain, double padded) {
  EXPECT_NEAR(got / formula, 1, 0.01) << what << " on " << world.size() << " ranks: " << got << " bytes, formula "
                                      << formula;
  if (world.rank() == 0)
    post(concat(what, " ", world.size(), " ranks: ", static_cast<std::int64_t>(got), " bytes, formula ",
                static_cast<std::int64_t>(formula), " (", 100 * (got / formula - 1), " %), padding ",
                100 * (padded / plain - 1), " %"));
}

void print(const std::vector<RankOutcome>& outcomes) {
  for (const std::string& line : outcomes[0].posted) std::printf("  %s\n", line.c_str());
}

TEST(Volume, of_a_step_is_the_formula) {
  constexpr int depth = 40;  // the unit that stays gathered between forward and backward is 1/120 of ZeRO-3's bytes
  for (const int ranks : {2, 3, 4})
    print(run_ranks(
        ranks,
        [&](comm::World& world) {
          const double share = (ranks - 1.0) / ranks;
          for (const char* strategy : {"ddp", "zero1", "zero2", "shard_grad_op"}) {
            const Volume v = volume_of_step(world, {.strategy = strategy}, 1, depth);
            expect_volume(world, strategy, v.all, 2 * v.m * share, v.plain, v.m);
          }
          const Volume v = volume_of_step(world, {.strategy = "full_shard"}, 1, depth);
          expect_volume(world, "full_shard", v.all, 3 * v.m * share, v.plain, v.m);
          EXPECT_LE(v.all, 3 * v.m * share + 1000) << "never more";
        },
        60));
}

TEST(Volume, with_micro_batches) {
  constexpr int depth = 40, ranks = 2;
  print(run_ranks(
      ranks,
      [&](comm::World& world) {
        const double share = (ranks - 1.0) / ranks;
        for (const int k : {2, 4}) {
          const auto check = [&](const char* strategy, double factor) {
            const Volume v = volume_of_step(world, {.strategy = strategy}, k, depth);
            expect_volume(world, concat(strategy, ", k = ", k).c_str(), v.all, factor * v.m * share, v.plain, v.m);
          };
          check("ddp", 2);
          check("zero1", 2);
          check("zero2", k + 1);
          check("shard_grad_op", 2 * k);
          check("full_shard", 3 * k);
        }
      },
      60));
}

TEST(Volume, of_hybrid_strategies) {
  constexpr int depth = 40, ranks = 4;
  print(run_ranks(
      ranks,
      [&](comm::World& world) {
        for (const int G : {1, 2, 4}) {
          const Volume v = volume_of_step(world, {.strategy = "full_shard", .shard_group_size = G}, 1, depth);
          const double W = ranks, across = 2 * v.m * (W - G) / (G * W);
          const double inside = G == 1 ? 0 : 3 * v.m * (G - 1) / G;
          expect_volume(world, concat("HSDP G = ", G).c_str(), v.all, inside + across, v.plain, v.m);
          if (G == 2) expect_volume(world, "HSDP G = 2, across groups", v.across, across, v.plain, v.m);
        }
        const Volume v = volume_of_step(world, {.strategy = "hybrid_shard_zero2", .shard_group_size = 2}, 1, depth);
        expect_volume(world, "hybrid_shard_zero2", v.across, 2 * v.m * 2 / 8.0, v.plain, v.m);
        expect_volume(world, "hybrid_shard_zero2, all", v.all, 2 * v.m / 2 + v.across, v.plain, v.m);
      },
      60));
}

// The root unit is not freed after forward unless requested; prefetch and limits do not cost a byte.
TEST(Volume, of_options) {
  run_ranks(2, [](comm::World& world) {
    const double plain = volume_of_step(world, {.strategy = "full_shard"}, 1, 8).all;
    for (int i = 0; i < 4; ++i) {
      ShardingOptions options{.strategy = "full_shard"};
      if (i == 0) options.forward_prefetch = false, options.backward_prefetch = layout::BackwardPrefetch::none;
      if (i == 1) options.backward_prefetch = layout::BackwardPrefetch::post;
      if (i == 2) options.limit_all_gathers = false;
      if (i == 3) options.overlap_comm = false;
      EXPECT_EQ(volume_of_step(world, options, 1, 8).all, plain) << i;
    }
    ShardingOptions half{.strategy = "full_shard", .reduce_dtype = at::kBFloat16};
    const Volume v = volume_of_step(world, half, 1, 8);
    EXPECT_NEAR(v.all / (plain - 0.5 * v.m / 2), 1, 0.01) << "gradients of half the size";
    ShardingOptions computing{.strategy = "full_shard", .param_dtype = at::kBFloat16, .reduce_dtype = at::kBFloat16};
    EXPECT_NEAR(volume_of_step(world, computing, 1, 8).all / (plain / 2), 1, 0.01) << "all of half the size";
  });
}

}  // namespace
