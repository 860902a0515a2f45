// Experts on several ranks compute the same as one process with all experts and all tokens.
#include <tests/distributed/harness.h>

#include <ATen/ATen.h>

#include <tessera/comm/recorder.h>
#include <tessera/nn/moe/capacity.h>
#include <tessera/nn/moe/router.h>
#include <tessera/parallel/expert/experts.h>

#include <cstdio>

namespace {

using namespace tessera;
using namespace tessera::testing;

// Widths that are multiples of the vector length, so that bits can be compared; chunks have two experts on two ranks,
// one on four.
constexpr std::int64_t C = 16, F = 32, E = 16, k = 2;

struct Layer {
  at::Tensor router;  // [E, C]
  nn::ExpertWeights experts;
};
/// Experts [begin, end) of a layer that is the same on every rank.
Layer make_layer(std::int64_t begin, std::int64_t end, at::ScalarType type = at::kDouble) {
  Layer layer;
  layer.experts.first = begin;
  layer.experts.total = E;
  at::Generator generator = at::detail::createCPUGenerator(7);
  const auto draw = [&](at::IntArrayRef sizes) {
    return (at::randn(sizes, generator, at::TensorOptions(at::kDouble)) * 0.3).to(type).requires_grad_();
  };
  layer.router = draw({E, C});
  for (std::int64_t e = 0; e < E; ++e) {
    const at::Tensor gate = draw({F, C}), up = draw({F, C}), down = draw({C, F});
    if (e < begin || e >= end) continue;
    layer.experts.gate.push_back(gate);
    layer.experts.up.push_back(up);
    layer.experts.down.push_back(down);
  }
  return layer;
}

/// Routes tokens. `all_to`: the expert that is every token's first choice; -1: the router alone decides.
nn::Routing choose(const Layer& layer, const at::Tensor& x, int all_to) {
  at::Tensor logits = nn::router_logits(x, layer.router);
  if (all_to >= 0) {
    at::Tensor bias = at::zeros({E}, logits.options());
    bias[all_to] = 100;
    logits = logits + bias;
  }
  return nn::route(logits, {.experts = E, .top_k = k, .normalize = true});
}

at::Tensor tokens(std::int64_t n, at::ScalarType type = at::kDouble) {
  at::Generator generator = at::detail::createCPUGenerator(11);
  return at::randn({n, C}, generator, at::TensorOptions(at::kDouble)).to(type);
}

struct Case {
  std::vector<std::int64_t> each;  ///< tokens of each rank
  int all_to;
};

TEST(ExpertParallel, equals_one_process) {
  for (const Case& test : {Case{{5, 9}, -1}, Case{{4, 4}, 6}, Case{{0, 7}, -1}, Case{{6, 0}, 0}, Case{{3, 1, 0, 8}, -1},
                           Case{{2, 2, 2, 2}, 3}}) {
    const auto ranks = static_cast<int>(test.each.size());
    std::int64_t all = 0;
    for (const std::int64_t n : test.each) all += n;
    Layer whole = make_layer(0, E);
    at::Tensor x_all = tokens(all).requires_grad_();
    const at::Tensor y_all = nn::experts(x_all, choose(whole, x_all, test.all_to), whole.experts);
    y_all.square().sum().backward();
    run_ranks(ranks, [&](comm::World& world) {
      const comm::Group& group = world.group();
      const layout::Range own = own_experts(E, group);
      const Layer layer = make_layer(own.begin, own.end);
      const nn::ExpertsFunction function = expert_parallel(group);
      std::int64_t first = 0;
      for (int r = 0; r < group.rank(); ++r) first += test.each[static_cast<std::size_t>(r)];
      const std::int64_t n = test.each[static_cast<std::size_t>(group.rank())];
      at::Tensor x = tokens(all).narrow(0, first, n).clone().requires_grad_();
      const at::Tensor y = function(x, choose(layer, x, test.all_to), layer.experts, {});
      const auto near = [](const at::Tensor& a, const at::Tensor& b, const char* what) {
        ASSERT_EQ(a.sizes(), b.sizes()) << what;
        if (a.numel() == 0) return;
        EXPECT_LE((a - b).abs().max().item<double>(), 1e-11 * (1 + b.abs().max().item<double>())) << what;
      };
      near(y, y_all.narrow(0, first, n), "results");
      y.square().sum().backward();
      near(x.grad(), x_all.grad().narrow(0, first, n), "tokens");
      for (std::int64_t e = own.begin; e < own.end; ++e) {
        const auto i = static_cast<std::size_t>(e - own.begin), j = static_cast<std::size_t>(e);
        near(layer.experts.gate[i].grad(), whole.experts.gate[j].grad(), "gate");
        near(layer.experts.up[i].grad(), whole.experts.up[j].grad(), "up");
        near(layer.experts.down[i].grad(), whole.experts.down[j].grad(), "down");
      }
      at::Tensor router = layer.router.grad().clone();
      group.all_reduce(router).wait();
      near(router, whole.router.grad(), "router");
    });
  }
}

// Wire bytes equal the bytes of the slots that leave their rank, counted there and back, and once more in backward.
TEST(ExpertParallel, sends_the_slots_that_go_elsewhere) {
  for (const int ranks : {2, 4}) {
    const auto outcomes = run_ranks(ranks, [&](comm::World& world) {
      const comm::Group& group = world.group();
      const layout::Range own = own_experts(E, group);
      const Layer layer = make_layer(own.begin, own.end, at::kFloat);
      const nn::ExpertsFunction function = expert_parallel(group);
      constexpr std::int64_t n = 64;
      at::Tensor x = tokens(n * ranks, at::kFloat).narrow(0, n * group.rank(), n).clone().requires_grad_();
      const nn::Routing routing = choose(layer, x, -1);
      const auto wire = [] {
        double sum = 0;
        for (const comm::OpTotals& row : comm::recorder().totals()) sum += static_cast<double>(row.wire_bytes);
        return sum;
      };
      const double before = wire();
      function(x, routing, layer.experts, {}).sum().backward();
      at::Tensor sent = at::full({2}, wire() - before, at::kDouble);
      const at::Tensor here = routing.ids.ge(own.begin).logical_and(routing.ids.lt(own.end)).sum();
      sent[1] = 4.0 * C * 4 * static_cast<double>(n * k - here.item<std::int64_t>());
      sent[1] += 8.0 * static_cast<double>(E - (own.end - own.begin));
      group.all_reduce(sent).wait();  // sum over ranks: each rank also sends back the rows it received
      EXPECT_NEAR(sent[0].item<double>() / sent[1].item<double>(), 1, 0.01);
      if (group.rank() == 0)
        post(concat(ranks, " ranks: ", sent[0].item<double>(), " bytes, formula ", sent[1].item<double>()));
    });
    for (const std::string& line : outcomes[0].posted) std::printf("  %s\n", line.c_str());
  }
}

// Each rank's tokens get separate products: results and gradients equal, bit for bit, those computed from that rank's
// tokens alone, whichever rank has the expert.
TEST(ExpertParallel, fixed_order_keeps_the_ranks_tokens_apart) {
  const std::vector<std::int64_t> each = {5, 0, 9, 3};
  run_ranks(4, [&](comm::World& world) {
    const comm::Group& group = world.group();
    const layout::Range own = own_experts(E, group);
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      const Layer layer = make_layer(own.begin, own.end, type);
      const auto per_source = c10::make_intrusive<nn::SourceGradients>(group.size());
      const nn::ExpertsFunction function = expert_parallel(group, per_source);
      std::vector<at::Tensor> parts = tokens(17, type).split_with_sizes(each);
      at::Tensor x = parts[static_cast<std::size_t>(group.rank())].clone().requires_grad_();
      const at::Tensor y = function(x, choose(layer, x, -1), layer.experts, {});
      y.square().sum().backward();
      std::vector<std::vector<at::Tensor>> up;  // gradients of this rank's experts, by the tokens' rank
      for (const at::Tensor& weight : layer.experts.up) {
        up.push_back(per_source->take(weight));
        up.back().insert(up.back().begin(), weight.grad());
      }
      for (std::size_t rank = 0; rank < each.size(); ++rank) {
        const Layer whole = make_layer(0, E, type);
        at::Tensor alone = parts[rank].clone().requires_grad_();
        const at::Tensor wanted = nn::experts(alone, choose(whole, alone, -1), whole.experts);
        wanted.square().sum().backward();
        if (static_cast<int>(rank) == group.rank()) {
          EXPECT_TRUE(at::equal(y, wanted)) << rank;
          EXPECT_TRUE(at::equal(x.grad(), alone.grad())) << rank;
          EXPECT_TRUE(at::equal(layer.router.grad(), whole.router.grad())) << rank;
        }
        for (std::int64_t e = own.begin; e < own.end; ++e) {
          const auto i = static_cast<std::size_t>(e - own.begin), j = static_cast<std::size_t>(e);
          ASSERT_EQ(up[i].size(), each.size()) << e;
          EXPECT_TRUE(at::equal(up[i][rank], whole.experts.up[j].grad())) << e << ", tokens of rank " << rank;
        }
      }
    }
  });
}

// Padding to a capacity gives the same results and fixes the wire bytes in advance.
TEST(ExpertParallel, padded_to_capacity) {
  run_ranks(2, [&](comm::World& world) {
    const comm::Group& group = world.group();
    const layout::Range own = own_experts(E, group);
    constexpr std::int64_t n = 64, capacity = 24;
    const auto run = [&](bool pad, double* sent) {
      const Layer layer = make_layer(own.begin, own.end, at::kFloat);
      at::Tensor x = tokens(n * 2, at::kFloat).narrow(0, n * group.rank(), n).clone().requires_grad_();
      nn::Routing routing =
          nn::within_capacity(choose(layer, x, 1), E, capacity, nn::DropBy::probability).routing;  // expert 1 is full
      if (pad) routing.padded_to = capacity;
      const auto wire = [] {
        double sum = 0;
        for (const comm::OpTotals& row : comm::recorder().totals()) sum += static_cast<double>(row.wire_bytes);
        return sum;
      };
      const double before = wire();
      const at::Tensor y = expert_parallel(group)(x, routing, layer.experts, {});
      y.square().sum().backward();
      *sent = wire() - before;
      return std::vector<at::Tensor>{y.detach(), x.grad(), layer.experts.gate[1].grad(), layer.router.grad()};
    };
    double plain_bytes = 0, padded_bytes = 0;
    const auto plain = run(false, &plain_bytes), padded = run(true, &padded_bytes);
    for (std::size_t i = 0; i < plain.size(); ++i)
      EXPECT_LE((plain[i] - padded[i]).abs().max().item<double>(), 1e-5 * plain[i].abs().max().item<double>()) << i;
    EXPECT_EQ(padded_bytes, 4.0 * C * 4 * capacity * E / 2 + 8.0 * E / 2);
    EXPECT_LT(plain_bytes, padded_bytes);
  });
}

TEST(ExpertParallel, says_what_does_not_fit) {
  run_ranks(3, [](comm::World& world) {
    try {
      (void)own_experts(E, world.group());
      ADD_FAILURE() << "16 experts on 3 ranks";
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find("16 experts cannot be divided evenly among the 3 ranks"),
                std::string::npos);
    }
  });
  const auto outcomes = run_ranks_outcomes(2, [](comm::World& world) {
    const Layer layer = make_layer(0, E / 2);  // rank 1 has the experts of rank 0
    const at::Tensor x = tokens(4);
    (void)expert_parallel(world.group())(x, choose(layer, x, -1), layer.experts, {});
  });
  EXPECT_NE(outcomes[1].error.find("experts 0 to 7 of 16 are on rank 1"), std::string::npos) << outcomes[1].error;
}

}  // namespace
