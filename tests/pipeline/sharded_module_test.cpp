// A user's module as a pipeline whose stages are divided among data-parallel ranks: two replicas of two ranks.
#include <tests/error_of.h>
#include <tests/pipeline/somebodys.h>

#include <tessera/comm/mesh_groups.h>
#include <tessera/comm/recorder.h>
#include <tessera/parallel/dispatch/managed.h>
#include <tessera/parallel/fully_shard.h>

namespace {

using namespace tessera;
using namespace tessera::testing;
using layout::schedule::Gathering;

constexpr int micro_batches = 4, steps = 3;

struct TableImpl : torch::nn::Module {
  explicit TableImpl(at::Tensor table = {}) {
    weight = register_parameter("weight", table.defined() ? table : at::randn({width, width}, at::kDouble) * 0.3);
    swapped = table.defined();
  }
  at::Tensor forward(const at::Tensor& x) { return at::matmul(x, swapped ? weight.t() : weight); }
  at::Tensor weight;
  bool swapped = false;
};
TORCH_MODULE(Table);

/// Six matrices; if tied, the last is the same as the first.
torch::nn::Sequential net_of_tables(bool tied) {
  at::manual_seed(4);
  torch::nn::Sequential net;
  Table first;
  net->push_back(first);
  for (int i = 1; i < 5; ++i) net->push_back(Table());
  net->push_back(tied ? Table(first->weight) : Table());
  return net;
}

PipelineParallelOptions options_for(const comm::Group& group, const char* schedule, Gathering gathering) {
  PipelineParallelOptions options;
  options.group = group;
  options.schedule = schedule;
  options.micro_batches = micro_batches;
  options.cut = PipelineCut::by_layers();
  options.loss = squares;
  options.gathering = gathering;
  return options;
}

std::uint64_t gathers_in(const std::string& group) {
  std::uint64_t count = 0;
  for (const comm::OpTotals& row : comm::recorder().totals())
    if (row.op == comm::Op::all_gather && row.group == group) count += row.count;
  return count;
}

struct Case {
  const char* strategy;
  Gathering gathering;
};
class ShardedModule : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(
    Strategy, ShardedModule,
    ::testing::Values(Case{"ddp", Gathering::per_micro_batch}, Case{"zero1", Gathering::per_micro_batch},
                      Case{"zero2", Gathering::per_micro_batch}, Case{"shard_grad_op", Gathering::per_micro_batch},
                      Case{"shard_grad_op", Gathering::per_batch}, Case{"full_shard", Gathering::per_micro_batch},
                      Case{"full_shard", Gathering::per_batch}),
    [](const auto& info) {
      return concat(info.param.strategy, info.param.gathering == Gathering::per_batch ? "_once" : "");
    });

TEST_P(ShardedModule, EqualsOneProcess) {
  const auto [strategy, gathering] = GetParam();
  for (const bool tied : {false, true}) {
    auto whole = net_of_tables(tied);
    // Replica c trains on half c of the rows: the mean over both is the mean over 2 m micro-batches.
    const Trained reference =
        train_alone(*whole, [&](const at::Tensor& x) { return whole->forward(x); }, 2 * micro_batches, steps);
    double norm = 0;
    for (const auto& item : once(whole->parameters())) norm += item.grad().square().sum().item<double>();
    run_ranks(4, [&, strategy = strategy, gathering = gathering](comm::World& world) {
      const comm::MeshGroups groups(world, layout::parse_mesh("pp=2,dp=2"));
      const comm::Group pp = groups.of(layout::Axis::pp), dp = groups.of(layout::Axis::dp_shard);
      for (const char* schedule : {"1f1b", "zbv"}) {
        auto net = net_of_tables(tied);
        PipelineParallel pipe(*net, options_for(pp, schedule, gathering));
        Sharded engine(*net, {.strategy = strategy,
                              .group = dp,
                              .wrap = by_class({"Table"}),
                              .stages = pp,
                              .held_by_earlier_stage = pipe.held_by_earlier_stage()});
        pipe.attach(engine);
        torch::optim::AdamW optimizer(engine.parameters(), torch::optim::AdamWOptions(0.02));
        for (int step = 0; step < steps; ++step) {
          engine.zero_grad();
          const at::Tensor x = batch_inputs(step).tensor_split(2)[static_cast<std::size_t>(dp.rank())],
                           y = batch_targets(step).tensor_split(2)[static_cast<std::size_t>(dp.rank())];
          at::Tensor loss = at::full({1}, pipe.train_batch(x, y), at::kDouble);
          dp.all_reduce(loss, comm::Reduction::mean).wait();
          EXPECT_NEAR(loss.item<double>(), reference.losses[static_cast<std::size_t>(step)], 1e-12);
          if (step + 1 == steps) {
            EXPECT_NEAR(pipe.clip_grad_norm(0), std::sqrt(norm), 1e-12);
          }
          optimizer.step();
        }
        engine.visit_parameters([&](const std::string& name, const at::Tensor& value) {
          EXPECT_LE((value - reference.weights.at(name)).abs().max().item<double>(), 1e-12) << name;
        });
        const at::Tensor everywhere = pipe.forward_batch(batch_inputs(0), true);
        const at::NoGradGuard none;
        EXPECT_LE((everywhere - whole->forward(batch_inputs(0))).abs().max().item<double>(), 1e-12) << schedule;
      }
    });
  }
}

// One gather per unit and batch instead of one per pass: the same bits, but the stage's bytes stay gathered in between.
TEST(GatheringOncePerBatch, SendsLessAndKeepsMore) {
  const auto outcomes = run_ranks(4, [](comm::World& world) {
    const comm::MeshGroups groups(world, layout::parse_mesh("pp=2,dp=2"));
    const comm::Group pp = groups.of(layout::Axis::pp), dp = groups.of(layout::Axis::dp_shard);
    for (const char* schedule : {"1f1b", "zb_h1", "zbv", "interleaved"}) {
      std::map<Gathering, std::map<std::string, at::Tensor>> weights;
      std::map<Gathering, std::uint64_t> gathers;
      std::map<Gathering, std::int64_t> peak;
      for (const Gathering gathering : {Gathering::per_micro_batch, Gathering::per_batch}) {
        auto net = net_of_tables(false);
        PipelineParallel pipe(*net, options_for(pp, schedule, gathering));
        Sharded engine(*net, {.strategy = "full_shard", .group = dp, .wrap = by_class({"Table"}), .stages = pp});
        pipe.attach(engine);
        torch::optim::SGD optimizer(engine.parameters(), 0.1);
        for (int step = 0; step < 2; ++step) {
          engine.zero_grad();
          const std::uint64_t before = gathers_in(dp.name());
          pipe.train_batch(batch_inputs(step + 10 * dp.rank()), batch_targets(step + 10 * dp.rank()));
          gathers[gathering] = gathers_in(dp.name()) - before;
          optimizer.step();
        }
        EXPECT_EQ(engine.memory().whole, 0) << schedule;
        peak[gathering] = engine.memory().whole_peak;
        engine.visit_parameters(
            [&](const std::string& name, const at::Tensor& value) { weights[gathering][name] = value.clone(); });
      }
      for (const auto& [name, value] : weights[Gathering::per_batch])
        EXPECT_TRUE(at::equal(value, weights[Gathering::per_micro_batch].at(name))) << schedule << ": " << name;
      constexpr std::uint64_t units = 3;            // on each rank: six matrices over two stages
      constexpr std::int64_t unit_bytes = 128 * 8;  // 36 doubles, padded to 2 x 64
      EXPECT_EQ(gathers[Gathering::per_batch], units) << schedule;
      EXPECT_GE(gathers[Gathering::per_micro_batch], micro_batches * units) << schedule;
      EXPECT_EQ(peak[Gathering::per_batch], static_cast<std::int64_t>(units) * unit_bytes) << schedule;
      EXPECT_LE(peak[Gathering::per_micro_batch], static_cast<std::int64_t>(units) * unit_bytes) << schedule;
      if (world.rank() == 0)
        post(concat(schedule, ": gathers ", gathers[Gathering::per_micro_batch], " -> ", gathers[Gathering::per_batch],
                    ", bytes ", peak[Gathering::per_micro_batch], " -> ", peak[Gathering::per_batch]));
    }
  });
  for (const std::string& line : outcomes[0].posted) std::printf("  %s\n", line.c_str());
}

TEST(GatheringOncePerBatch, EnginesThatDoNotFitAreRefused) {
  run_ranks(2, [](comm::World& world) {
    const comm::Group pp = world.group(), alone = world.new_group({world.rank()}, "alone");
    const auto said = [&](ShardingOptions sharding, Gathering gathering, bool tied, bool other = false) {
      auto net = net_of_tables(tied), another = net_of_tables(false);
      PipelineParallel pipe(*net, options_for(pp, "1f1b", gathering));
      Sharded engine(other ? *another : *net, std::move(sharding));
      return error_of([&] { pipe.attach(engine); });
    };
    ShardingOptions sharding{.strategy = "full_shard", .group = alone, .stages = pp};
    EXPECT_EQ(said(sharding, Gathering::per_batch, false), "");
    EXPECT_EQ(
        said(sharding, Gathering::per_batch, false, true),
        "pipeline: attach() was given an engine with 6 trained parameters, but this rank's stages have 3: construct "
        "tessera::Sharded around the same module, after the pipeline");
    const std::string tied = said(sharding, Gathering::per_batch, true);
    EXPECT_EQ(tied.find("construct this rank's engine with .held_by_earlier_stage") != std::string::npos,
              world.rank() == 1);
    sharding.strategy = "zero2";
    EXPECT_EQ(said(sharding, Gathering::per_batch, false),
              "pipeline: gathering once per batch has no effect under strategy 'zero2', which keeps parameters whole; "
              "remove it, or choose a strategy that shards parameters (full_shard)");
    sharding.stages = {};
    EXPECT_EQ(said(sharding, Gathering::per_micro_batch, false),
              "pipeline: attach() was given an engine that does not know the other stages, so its norms would cover "
              "one rank only; construct it with .stages = the pipeline's group");
    auto net = net_of_tables(false);
    const Sharded first(*net, {.strategy = "full_shard", .group = alone, .reshard_alone = true});
    const std::string late = error_of([&] { PipelineParallel(*net, options_for(pp, "1f1b", Gathering::per_batch)); });
    EXPECT_NE(late.find("construct the pipeline first"), std::string::npos) << late;
  });
}

}  // namespace
