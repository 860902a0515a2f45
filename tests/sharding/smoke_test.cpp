// Basic test of the engine: every strategy on real ranks against one process, for small unmodified modules.
#include <tests/sharding/job.h>

#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <tessera/parallel/fully_shard.h>
#include <tests/distributed/harness.h>

namespace {

using namespace tessera;
using namespace tessera::testing;

template <class M>
void compare(comm::World& world, ShardingOptions options, int micro_batches) {
  at::manual_seed(7);
  M alone, job;
  {
    const at::NoGradGuard no_grad;
    const auto from = alone.parameters(), to = job.parameters();
    for (std::size_t i = 0; i < to.size(); ++i) at::Tensor(to[i]).copy_(from[i]);
  }
  Sharded sharded(job, fitted(std::move(options)));
  std::vector<at::Tensor> once;  // the tied weight is registered twice
  for (const at::Tensor& p : alone.parameters())
    if (std::none_of(once.begin(), once.end(), [&](const at::Tensor& o) { return o.is_same(p); })) once.push_back(p);
  torch::optim::SGD optimizer(sharded.parameters(), 0.05), reference(once, 0.05);
  for (int step = 0; step < 6; ++step) {
    const Batch batch = global_batch(step, 24);
    reference.zero_grad();
    const at::Tensor expected = mean_loss(alone, batch);
    expected.backward();
    reference.step();
    sharded.zero_grad();
    const Batch mine = part(batch, world.rank(), world.size());
    for (int micro = 0; micro < micro_batches; ++micro) {
      std::optional<Sharded::NoSync> pause;
      if (micro + 1 < micro_batches) pause.emplace(sharded);
      (mean_loss(job, part(mine, micro, micro_batches)) / micro_batches).backward();
    }
    const double norm = sharded.clip_grad_norm(0);
    EXPECT_GT(norm, 0);
    optimizer.step();
  }
  std::map<std::string, at::Tensor> expected;
  for (const auto& p : alone.named_parameters()) expected[p.key()] = p.value();
  sharded.visit_parameters([&](const std::string& name, const at::Tensor& value) {
    EXPECT_TRUE(at::allclose(value, expected.at(name), 1e-5, 1e-6)) << name;
  });
}

class ShardedSmoke : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Strategy, ShardedSmoke,
                         ::testing::Values("ddp", "zero1", "zero2", "shard_grad_op", "full_shard", "hybrid_shard",
                                           "hybrid_shard_zero2"));

TEST_P(ShardedSmoke, equals_one_process) {
  for (const int ranks : {1, 2, 4})
    run_ranks(ranks, [&](comm::World& world) {
      for (const int micro : {1, 3}) {
        ShardingOptions options{.strategy = GetParam(), .reshard_alone = true};
        if (row_of(options.strategy).shard_group == ShardGroup::host) options.shard_group_size = (world.size() + 1) / 2;
        options.wrap = by_class({"Linear"});
        if (world.size() == 4 && micro == 3) continue;  // 24 rows
        compare<SimpleModel>(world, options, micro);
        options.wrap = {};
        compare<SharedModel>(world, options, micro);
        options.wrap = by_class({"Conv2d", "Linear"});
        compare<ConvModel>(world, options, micro);
        options.wrap = by_class({"LSTM", "MultiheadAttention"});
        compare<SequenceModel>(world, options, micro);
      }
    });
}

}  // namespace
