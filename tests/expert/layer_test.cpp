// A module of somebody's with a mixture of experts in it: any number of ranks trains it as one process does.
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
/// Rows [first, first + count) of every step's.
Trained train(const comm::Group& ep, const comm::Group& copies, const comm::Group& all, std::int64_t first,
              std::int64_t count) {
  torch::manual_seed(5);
  Net net(ep);
  net.to(at::kDouble);
  Sharded engine(
      net, {.strategy = copies.size() > 1 ? "full_shard" : "ddp", .group = copies, .reduction = comm::Reduction::sum});
  torch::optim::SGD optimizer(engine.parameters(), 0.2);
  Trained result;
  for (std::int64_t step = 0; step < steps; ++step) {
    torch::manual_seed(100 + step);
    const at::Tensor x = torch::randn({rows, 6}, at::kDouble).narrow(0, first, count);
    engine.zero_grad();
    const at::Tensor loss = (net.forward(x) - x.sum(1, true).sin()).square().sum() / rows;
    loss.backward();
    if (ep) sum_over_expert_ranks(engine, ep, is_expert_parameter);
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
  for (const int ranks : {2, 4})
    for (const int ep : {2, 4}) {
      if (ranks % ep != 0) continue;
      run_ranks(ranks, [&](comm::World& world) {
        const comm::Group alone(comm::make_local_backend("alone", at::kCPU));
        const Trained whole = train({}, alone, {}, 0, rows);
        const comm::MeshGroups groups(world, layout::make_mesh({.sizes = {1, 1, ranks, 1, 1}, .ep = ep}, ranks));
        const Trained mine = train(groups.of(layout::Axis::ep), groups.of(layout::Axis::edp), world.group(),
                                   rows / ranks * world.rank(), rows / ranks);
        for (std::size_t i = 0; i < mine.losses.size(); ++i) EXPECT_NEAR(mine.losses[i], whole.losses[i], 1e-11);
        for (const auto& [name, value] : mine.weights)
          EXPECT_LE((value - whole.weights.at(name)).abs().max().item<double>(), 1e-11) << name;
      });
    }
}

TEST(ExpertsLayer, tells_its_load_and_its_loss) {
  torch::manual_seed(1);
  Experts moe(ExpertsOptions{.hidden = 4, .intermediate = 6, .experts = 3, .top_k = 2});
  EXPECT_NE(error_of([&] { (void)moe->balancing_loss(); }).find("there was none"), std::string::npos);
  const at::Tensor y = moe->forward(torch::randn({2, 5, 4}));
  EXPECT_EQ(y.sizes(), (at::IntArrayRef{2, 5, 4}));
  EXPECT_EQ(moe->load().sum().item<std::int64_t>(), 2 * 5 * 2);
  moe->balancing_loss().backward();
  EXPECT_GT(moe->named_parameters()["gate.weight"].grad().abs().sum().item<double>(), 0);
  EXPECT_NE(error_of([&] { (void)moe->forward(torch::randn({2, 5})); }).find("its last dimension is hidden, 4"),
            std::string::npos);
  EXPECT_NE(error_of([] {
              Experts(ExpertsOptions{.hidden = 4, .intermediate = 6, .experts = 3, .top_k = 4});
            }).find("top_k at most the number of experts"),
            std::string::npos);
}

}  // namespace
