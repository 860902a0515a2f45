// A user's module that contains a mixture of experts: any number of ranks trains it as one process does.
#include <tests/distributed/harness.h>
#include <tests/error_of.h>

#include <torch/torch.h>

#include <tessera/comm/backend.h>
#include <tessera/comm/mesh_groups.h>
#include <tessera/parallel/expert/experts.h>
#include <tessera/parallel/expert/layer.h>

#include <map>

namespace {

using namespace tessera;
using namespace tessera::testing;

constexpr std::int64_t width = 12, rows = 16, steps = 4;

struct Net : torch::nn::Module {
  explicit Net(const comm::Group& group)
      : in(register_module("in", torch::nn::Linear(6, width))),
        moe(register_module(
            "moe",
            Experts(ExpertsOptions{.hidden = width, .intermediate = 20, .experts = 8, .top_k = 2, .group = group}))),
        out(register_module("out", torch::nn::Linear(width, 1))) {}
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor h = torch::tanh(in->forward(x));
    return out->forward(h + moe->forward(h));
  }
  torch::nn::Linear in;
  Experts moe;
  torch::nn::Linear out;
};

struct Trained {
  std::vector<double> losses;
  std::map<std::string, at::Tensor> weights;
};
/// Trains on rows [first, first + count) of every step.
Trained train(const char* strategy, const comm::Group& ep, const comm::Group& sums, const comm::Group& copies,
              const comm::Group& all, std::int64_t first, std::int64_t count) {
  torch::manual_seed(5);
  Net net(ep);
  net.to(at::kDouble);
  Sharded engine(net,
                 {.strategy = strategy,
                  .group = copies,
                  .reduction = comm::Reduction::sum,
                  .shared_by_experts = {sums, [](const std::string& name) { return !is_expert_parameter(name); }}});
  torch::optim::SGD optimizer(engine.parameters(), 0.2);
  Trained result;
  for (std::int64_t step = 0; step < steps; ++step) {
    torch::manual_seed(100 + step);
    const at::Tensor x = torch::randn({rows, 6}, at::kDouble).narrow(0, first, count);
    engine.zero_grad();
    const at::Tensor loss = (net.forward(x) - x.sum(1, true).sin()).square().sum() / rows;
    loss.backward();
    optimizer.step();
    at::Tensor sum = loss.detach().clone();
    if (all) all.all_reduce(sum).wait();
    result.losses.push_back(sum.item<double>());
  }
  engine.visit_parameters(
      [&](const std::string& name, const at::Tensor& value) { result.weights[name] = value.clone(); });
  return result;
}

TEST(ExpertsLayer, trains_as_one_process_on_any_number_of_ranks) {
  struct Case {
    int ranks, ep;
    const char* strategy;
  };
  for (const auto& [ranks, ep, strategy] : {Case{2, 2, "ddp"}, Case{4, 4, "ddp"}, Case{4, 2, "ddp"},
                                            Case{4, 2, "zero1"}, Case{4, 2, "zero2"}, Case{4, 2, "full_shard"}}) {
    run_ranks(ranks, [&, ranks = ranks, ep = ep, strategy = strategy](comm::World& world) {
      const comm::Group alone(comm::make_local_backend("alone", at::kCPU));
      const Trained whole = train("ddp", {}, {}, alone, {}, 0, rows);
      const layout::Mesh mesh = layout::make_mesh({.sizes = {1, 1, ranks, 1, 1}, .ep = ep}, ranks);
      const comm::MeshGroups groups(world, mesh);
      constexpr layout::Axis axis = layout::Axis::ep;
      const comm::Group sums = world.split(layout::all_groups(mesh, std::span(&axis, 1)), "ep gradients");
      const Trained mine = train(strategy, groups.of(axis), sums, groups.of(layout::Axis::edp), world.group(),
                                 rows / ranks * world.rank(), rows / ranks);
      for (std::size_t i = 0; i < mine.losses.size(); ++i) EXPECT_NEAR(mine.losses[i], whole.losses[i], 1e-11);
      for (const auto& [name, value] : mine.weights)
        EXPECT_LE((value - whole.weights.at(name)).abs().max().item<double>(), 1e-11) << name;
    });
  }
}

TEST(ExpertsLayer, what_is_shared_by_experts_the_group_is_summed_or_refused) {
  run_ranks(2, [](comm::World& world) {
    const comm::Group alone(comm::make_local_backend("alone", at::kCPU));
    torch::nn::Linear layer(3, 1);
    const auto wrap = [&](ShardingOptions::SharedByExperts shared, comm::Reduction reduction, std::int64_t fixed = 0) {
      return Sharded(*layer, {.strategy = "ddp",
                              .group = alone,
                              .reduction = reduction,
                              .logical_shards = fixed,
                              .shared_by_experts = std::move(shared)});
    };
    const auto weight = [](const std::string& name) { return name == "weight"; };
    const auto refusal = [&](auto... given) { return error_of([&] { (void)wrap(given...); }); };
    const ShardingOptions::SharedByExperts shared{world.group(), weight};
    EXPECT_NE(refusal(shared, comm::Reduction::mean).find("divide the loss by the number of all ranks"),
              std::string::npos);
    EXPECT_NE(refusal(shared, comm::Reduction::sum, 4).find("set shared_by_experts.per_source with 2 sources"),
              std::string::npos);
    ShardingOptions::SharedByExperts per_source = shared;
    per_source.per_source = c10::make_intrusive<nn::SourceGradients>(2);
    EXPECT_NE(refusal(per_source, comm::Reduction::sum, 3)
                  .find("are not divisible by the 1 ranks of group 'alone' times the 2"),
              std::string::npos);
    EXPECT_NE(refusal(ShardingOptions::SharedByExperts{world.group(), {}}, comm::Reduction::sum)
                  .find("set shared_by_experts"),
              std::string::npos);

    Sharded engine = wrap(shared, comm::Reduction::sum);
    const auto rank = static_cast<double>(world.rank());
    const auto backward = [&] { layer->forward(at::full({1, 3}, rank + 1)).sum().backward(); };
    const auto expect = [&](double of_weight, double of_bias) {
      EXPECT_TRUE(at::equal(layer->weight.grad(), at::full({1, 3}, of_weight)));
      EXPECT_TRUE(at::equal(layer->bias.grad(), at::full({1}, of_bias)));
    };
    backward();
    expect(3, 1);
    backward();  // adds to gradients that are already reduced
    expect(6, 2);
    engine.zero_grad();
    EXPECT_FALSE(layer->weight.grad().defined() || layer->bias.grad().defined());
    {
      const Sharded::NoSync paused = engine.no_sync();
      backward();
    }
    backward();
    expect(6, 2);
  });
}

TEST(ExpertsLayer, tells_its_load_and_its_loss) {
  torch::manual_seed(1);
  Experts moe(ExpertsOptions{.hidden = 4, .intermediate = 6, .experts = 3, .top_k = 2});
  EXPECT_NE(error_of([&] { (void)moe->balancing_loss(); }).find("needs a forward pass in grad mode"),
            std::string::npos);
  const at::Tensor y = moe->forward(torch::randn({2, 5, 4}));
  EXPECT_EQ(y.sizes(), (at::IntArrayRef{2, 5, 4}));
  EXPECT_EQ(moe->slots_per_expert().sum().item<std::int64_t>(), 2 * 5 * 2);
  moe->balancing_loss().backward();
  EXPECT_GT(moe->named_parameters()["gate.weight"].grad().abs().sum().item<double>(), 0);
  EXPECT_NE(error_of([&] { (void)moe->forward(torch::randn({2, 5})); }).find("its last dimension must be hidden, 4"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              Experts(ExpertsOptions{.hidden = 4, .intermediate = 6, .experts = 3, .top_k = 4});
            }).find("top_k at most the number of experts"),
            std::string::npos);
}

}  // namespace
