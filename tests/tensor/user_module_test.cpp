// Unmodified torch::nn modules under tensor and sequence parallelism give the results of one process.
#include <tests/tensor/user_nets.h>

#include <torch/nn/functional/embedding.h>
#include <torch/optim/adamw.h>
#include <torch/serialize.h>

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <new>
#include <thread>

namespace {

using namespace tessera;
using namespace tessera::testing;
using layout::Axis;

struct Kind {
  std::string name;
  std::function<User()> make;
  TensorPlan plan;
  std::string block;
  bool tokens_second = true;  ///< activations [B, T, C]
};
const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"heads from activations", [] { return heads_net(); }, heads_plan(), "HeadsBlock"},
      {"tied", [] { return heads_net({.tied = true}); }, tied_plan(), "HeadsBlock"},
      {"recomputed", [] { return heads_net({.recompute = true}); }, heads_plan(), "HeadsBlock"},
      {"MultiheadAttention", attention_net, attention_plan(), "MyBlock", false},
  };
  return all;
}

struct Place {
  std::string mesh, strategy = {};  ///< empty strategy: tensor parallelism only
  bool sequence_parallel = false, overlap_products = false;
};

User prepared(const Kind& kind, const NetTraining& training) {
  User user = kind.make();
  user.module->to(training.dtype);
  freeze(user, training);
  return user;
}

NetRun train_on(comm::World& world, const Kind& kind, const Place& place, const NetTraining& training) {
  const layout::Mesh mesh = layout::parse_mesh(place.mesh, world.size());
  const User user = prepared(kind, training);
  const TensorParallel parts(*user.module, {.group = comm::mesh_group(world, mesh, std::vector{Axis::tp}),
                                            .plan = kind.plan,
                                            .sequence_parallel = place.sequence_parallel,
                                            .overlap_products = place.overlap_products});
  if (place.strategy.empty()) return train_own(user, training);
  return train_sharded(user, comm::mesh_group(world, mesh, std::vector{Axis::dp_replicate, Axis::dp_shard}),
                       place.strategy, {kind.block}, training);
}

void check(int ranks, const std::vector<Place>& places, const NetTraining& training, double bar) {
  std::map<std::string, NetRun> wanted;
  for (const Kind& kind : kinds()) wanted[kind.name] = train_own(prepared(kind, training), training);
  run_ranks(
      ranks,
      [&](comm::World& world) {
        for (const Place& place : places)
          for (const Kind& kind : kinds())
            if (kind.tokens_second || !place.sequence_parallel)
              expect_same_nets(train_on(world, kind, place, training), wanted.at(kind.name), bar,
                               concat(kind.name, " on ", place.mesh, " ", place.strategy,
                                      place.sequence_parallel ? " with sequence parallelism" : "",
                                      place.overlap_products ? ", products in parts" : ""));
      },
      120);
}

TEST(UserModule, plans_have_six_lines) {
  for (const Kind& kind : kinds()) EXPECT_LE(kind.plan.size(), 6u) << kind.name;
}

TEST(UserModule, two_ranks) { check(2, {{"tp=2"}, {"tp=2", "", true}, {"tp=2", "ddp", true}}, {}, 1e-5); }

TEST(UserModule, products_in_parts) {
  const std::vector<Place> places = {{"tp=2", "", false, true}, {"tp=2", "", true, true}};
  check(2, places, {.steps = 3}, 1e-5);
  check(2, places, {.steps = 3, .dtype = at::kDouble}, 1e-11);
}

struct Mlp : torch::nn::Module {
  torch::nn::Linear up = register_module("up", torch::nn::Linear(8, 16)),
                    down = register_module("down", torch::nn::Linear(16, 8));
  at::Tensor forward(const at::Tensor& x) { return down(at::gelu(up(x))); }
};

// Rank 1 arrives late at the sum of the input's gradients. Rank 0 has started it and forms the gradient of its columns
// before it waits.
TEST(UserModule, gradients_of_columns_are_formed_while_the_sum_is_on_its_way) {
  void* page = ::mmap(nullptr, sizeof(std::atomic<bool>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  auto* formed_by_rank_0 = new (page) std::atomic<bool>(false);
  run_ranks(2, [formed_by_rank_0](comm::World& world) {
    const auto now = [] { return seconds_on(CLOCK_MONOTONIC); };
    Mlp net;
    const TensorParallel parts(
        net, {.plan = {{"up", TensorStyle::colwise}, {"down", TensorStyle::rowwise}}, .check_values = false});
    double formed = 0;
    bool comparing = true;  // the first backward compares gradients of parameters that are not cut
    net.up->weight.register_hook([&](const at::Tensor&) {
      formed = now();
      if (!comparing && world.rank() == 0) *formed_by_rank_0 = true;
    });
    const at::Tensor x = at::ones({2, 4, 8}).requires_grad_();
    net.forward(x).sum().backward();
    comparing = false;
    const at::Tensor y = net.forward(x).sum();
    for (const Stopwatch watch; world.rank() == 1 && !*formed_by_rank_0 && watch.seconds() < watch.limit(5);)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const double began = now();
    y.backward();
    const at::Tensor all = at::empty({2, 3}, at::kDouble);
    world.group().all_gather(all, at::tensor({began, formed, now()}, at::kDouble)).wait();
    const double late = all[1][0].item<double>();
    EXPECT_GT(all[0][1].item<double>(), all[0][0].item<double>());
    EXPECT_LT(all[0][1].item<double>(), late);  // the gradient is complete before rank 1 starts
    EXPECT_GT(all[0][2].item<double>(), late);  // the pass does not end before rank 1 starts
  });
  ::munmap(page, sizeof(std::atomic<bool>));
}

TEST(UserModule, two_ranks_in_fp64) {
  check(2, {{"tp=2"}, {"tp=2", "", true}}, {.steps = 3, .dtype = at::kDouble}, 1e-11);
}

TEST(UserModule, four_ranks) { check(4, {{"tp=4"}, {"tp=4", "", true}}, {.steps = 3}, 1e-5); }

TEST(UserModule, with_data_parallel_engines) {
  check(4,
        {{"dp=2,tp=2", "full_shard"}, {"dp=2,tp=2", "full_shard", true}, {"dp=2,tp=2", "zero1"}, {"dp=2,tp=2", "ddp"}},
        {}, 1e-5);
  check(4, {{"dp=2,tp=2", "full_shard"}}, {.steps = 2, .dtype = at::kDouble}, 1e-11);
}

TEST(UserModule, accumulation_and_frozen_parameters) {
  NetTraining training{.steps = 3, .accumulation = 2};
  check(2, {{"tp=2"}, {"tp=2", "", true}}, training, 1e-5);
  for (const char* frozen : {"token.weight", "place.weight", "norm.bias"}) training.frozen.push_back(frozen);
  training.frozen.push_back("blocks.0.up.weight");
  check(4, {{"dp=2,tp=2", "full_shard", true}}, training, 1e-5);
  check(2, {{"tp=2"}}, training, 1e-5);
}

TEST(UserModule, parameters_thawed_after_the_cut) {
  const Kind& kind = kinds()[0];
  const NetRun wanted = train_own(kind.make(), {.steps = 2});
  run_ranks(2, [&](comm::World&) {
    const User user = kind.make();
    for (const at::Tensor& p : user.module->parameters()) p.requires_grad_(false);
    const TensorParallel parts(*user.module, {.plan = kind.plan, .sequence_parallel = true});
    for (const at::Tensor& p : user.module->parameters()) p.requires_grad_(true);
    expect_same_nets(train_own(user, {.steps = 2}), wanted, 1e-5, "thawed");
  });
}

// bf16 rounds activations: losses agree to its precision.
TEST(UserModule, autocast) { check(2, {{"tp=2"}, {"tp=2", "", true}}, {.steps = 3, .bf16 = true}, 0.03); }

void expect_trained_as_whole(const Kind& kind, const std::function<NetRun(const User&, const Kind&)>& train) {
  const NetRun wanted = train_own(kind.make(), {.steps = 2});
  run_ranks(2, [&](comm::World&) { expect_same_nets(train(kind.make(), kind), wanted, 1e-5, kind.name); });
}

// A LibTorch optimizer created before the cut: it holds the same parameters.
TEST(UserModule, optimizers_of_libtorch) {
  for (const Kind& kind : kinds()) {
    const auto train = [&](const User& user, torch::optim::AdamW& optimizer) {
      for (int step = 0; step < 5; ++step) {
        optimizer.zero_grad();
        net_loss(user, step, 0, net_rows).backward();
        optimizer.step();
      }
      NetRun run;
      run.losses = {net_loss(user, 9, 0, net_rows).item<double>()};
      run.norms = {1};
      for (const auto& p : user.module->named_parameters())
        // The gradients of key biases are pure rounding noise, which Adam amplifies.
        if (p.key().find("bias") == std::string::npos)
          run.weights[p.key()] = gather_tensor_parts(p.value(), p.value().detach()).clone();
      return run;
    };
    const auto options = torch::optim::AdamWOptions(1e-3).weight_decay(0.1);
    const User whole = kind.make();
    torch::optim::AdamW alone(whole.module->parameters(), options);
    const NetRun wanted = train(whole, alone);
    run_ranks(2, [&](comm::World&) {
      const User user = kind.make();
      torch::optim::AdamW optimizer(user.module->parameters(), options);
      const TensorParallel parts(*user.module, {.plan = kind.plan});
      expect_same_nets(train(user, optimizer), wanted, 2e-4, kind.name);
    });
  }
}

TEST(UserModule, is_whole_again_after_restore) {
  expect_trained_as_whole(kinds()[0], [](const User& user, const Kind& kind) {
    TensorParallel parts(*user.module, {.plan = kind.plan, .sequence_parallel = true});
    EXPECT_EQ(parts.parameters().size(), 2 * 6u + 3) << "qkv, up with biases, out, down; token, place, head";
    (void)train_own(user, {.steps = 1});
    parts.restore();
    for (const auto& p : user.module->named_parameters()) EXPECT_FALSE(p.value().grad().defined());
    const User fresh = kind.make();
    {
      const at::NoGradGuard no_grad;
      for (const auto& p : user.module->named_parameters()) {
        EXPECT_EQ(p.value().sizes(), fresh.module->named_parameters()[p.key()].sizes());
        at::Tensor(p.value()).copy_(fresh.module->named_parameters()[p.key()]);
      }
    }
    return train_own(user, {.steps = 2});  // an ordinary module
  });
}

TEST(UserModule, is_written_and_read_by_libtorch_when_whole) {
  expect_trained_as_whole(kinds()[3], [](const User& user, const Kind& kind) {
    TensorParallel parts(*user.module, {.plan = kind.plan});
    parts.restore();
    std::ostringstream out;
    torch::save(user.module, out);
    const User read = kind.make();
    for (const at::Tensor& p : read.module->parameters()) p.detach().zero_();
    std::istringstream in(out.str());
    auto module = read.module;
    torch::load(module, in);
    const TensorParallel again(*read.module, {.plan = kind.plan});
    return train_own(read, {.steps = 2});
  });
}

TEST(UserModule, changes_its_type_in_parts) {
  const NetRun wanted = train_own(prepared(kinds()[0], {.dtype = at::kDouble}), {.steps = 2, .dtype = at::kDouble});
  run_ranks(2, [&](comm::World&) {
    const User user = kinds()[0].make();
    const TensorParallel parts(*user.module, {.plan = kinds()[0].plan, .sequence_parallel = true});
    user.module->to(at::kDouble);
    expect_same_nets(train_own(user, {.steps = 2}), wanted, 1e-11, "to(dtype)");
  });
}

TEST(UserModule, its_clone_evaluates) {
  const User whole = kinds()[0].make();
  const at::Tensor ids = at::arange(8).view({1, 8});
  const at::Tensor wanted = whole.logits(ids).detach();
  run_ranks(2, [&](comm::World&) {
    const User user = kinds()[0].make();
    const TensorParallel parts(*user.module, {.plan = kinds()[0].plan});
    const auto copy = std::dynamic_pointer_cast<HeadsNetImpl>(user.module->clone());
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(at::allclose(copy->forward(ids), wanted, 1e-5, 1e-6));
    // An average of weights: elementwise, on parts.
    for (const auto& p : copy->named_parameters())
      at::Tensor(p.value()).mul_(0.5).add_(user.module->named_parameters()[p.key()], 0.5);
    EXPECT_TRUE(at::allclose(copy->forward(ids), wanted, 1e-5, 1e-6));
  });
}

struct Weights : torch::nn::Module {
  at::Tensor table, matrix, bias, turned;
  Weights(const at::Tensor& table_, const at::Tensor& matrix_, const at::Tensor& bias_, const at::Tensor& turned_) {
    table = register_parameter("table", table_.clone());
    matrix = register_parameter("matrix", matrix_.clone());
    bias = register_parameter("bias", bias_.clone());
    turned = register_parameter("turned", turned_.clone());
  }
};

TEST(UserModule, functions_of_libtorch) {
  namespace F = torch::nn::functional;
  const at::Tensor table = at::randn({12, 6}, at::kDouble), matrix = at::randn({8, 6}, at::kDouble),
                   bias = at::randn({8}, at::kDouble), ids = at::tensor({1, 11, 5, 0}).view({2, 2}),
                   turned = at::randn({6, 8}, at::kDouble);
  // Ways to write x W^T and x W, including scaled and cast weights.
  const auto results = [&](Weights& w) {
    const at::Tensor x = F::embedding(ids, w.table);
    const at::Tensor flat = x.reshape({-1, 6});
    return std::vector<at::Tensor>{
        x,
        torch::linear(x, w.matrix),
        torch::linear(x, w.matrix, w.bias),
        F::linear(x, w.matrix, w.bias),
        F::linear(flat, w.matrix, w.bias),
        x.matmul(w.matrix.t()) + w.bias,
        x.matmul(w.matrix.transpose(0, 1)),
        x.matmul(w.matrix.mT()),
        flat.mm(w.matrix.t()),
        at::addmm(w.bias, flat, w.matrix.t(), 2, 0.5),
        torch::linear(x, w.matrix * 0.5),
        torch::linear(x, w.matrix.clone()),
        torch::linear(x, w.matrix.detach()),
        torch::linear(x.to(at::kFloat), w.matrix.to(at::kFloat)).to(at::kDouble),
        x.matmul(w.turned),
        torch::linear(x, w.turned.t()),
    };
  };
  Weights whole(table, matrix, bias, turned);
  std::vector<at::Tensor> wanted, gradients;
  const auto gradients_of = [&](Weights& w) {
    at::Tensor sum = at::zeros({}, at::kDouble);
    for (const at::Tensor& y : results(w)) sum = sum + (y * y.detach().cos()).sum();
    sum.backward();
  };
  for (const at::Tensor& y : results(whole)) wanted.push_back(y.detach());
  gradients_of(whole);
  run_ranks(2, [&](comm::World&) {
    using enum TensorStyle;
    Weights cut(table, matrix, bias, turned);
    const TensorParallel parts(cut,
                               {.plan = {{"table", embedding_rowwise},
                                         {"matrix|bias", colwise_gather_output},
                                         {.pattern = "turned", .style = colwise_gather_output, .transposed = true}}});
    const auto got = results(cut);
    for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(at::allclose(got[i], wanted[i], 1e-6, 1e-6)) << i;
    gradients_of(cut);
    for (const auto& p : whole.named_parameters()) {
      const at::Tensor& mine = cut.named_parameters()[p.key()];
      EXPECT_TRUE(at::allclose(gather_tensor_parts(mine, mine.grad()), p.value().grad(), 1e-6, 1e-6)) << p.key();
    }
  });
}

// Backward recomputes the forward that it belongs to, whatever passes ran in between.
TEST(UserModule, is_recomputed_after_other_passes) {
  const User whole = heads_net({.recompute = true});
  net_loss(whole, 0, 0, net_rows).backward();
  run_ranks(2, [&](comm::World&) {
    for (const bool sequence_parallel : {false, true}) {
      const User user = heads_net({.recompute = true});
      const TensorParallel parts(*user.module, {.plan = heads_plan(), .sequence_parallel = sequence_parallel});
      const at::Tensor loss = net_loss(user, 0, 0, net_rows);
      {
        const at::NoGradGuard no_grad;
        (void)user.logits(at::arange(7).view({1, 7}));
      }
      (void)user.logits(at::arange(4).view({1, 4}));
      loss.backward();
      for (const auto& p : whole.module->named_parameters()) {
        const at::Tensor mine = user.module->named_parameters()[p.key()];
        EXPECT_TRUE(at::allclose(gather_tensor_parts(mine, mine.grad()), p.value().grad(), 1e-4, 1e-6)) << p.key();
      }
    }
  });
}

TEST(UserModule, evaluates_without_gradients) {
  for (const Kind& kind : kinds()) {
    const User whole = kind.make();
    const at::Tensor ids = at::arange(7).view({1, 7});  // not a multiple of the number of ranks
    const at::Tensor wanted = whole.logits(ids).detach();
    run_ranks(2, [&](comm::World&) {
      for (const bool sequence_parallel : {false, true}) {
        if (sequence_parallel && !kind.tokens_second) continue;
        const User user = kind.make();
        const TensorParallel parts(*user.module, {.plan = kind.plan, .sequence_parallel = sequence_parallel});
        {
          const at::NoGradGuard no_grad;
          EXPECT_TRUE(at::allclose(user.logits(ids), wanted, 1e-5, 1e-6)) << kind.name;
        }
        const c10::InferenceMode inference;
        EXPECT_TRUE(at::allclose(user.logits(ids), wanted, 1e-5, 1e-6)) << kind.name << ", inference mode";
      }
    });
  }
}

}  // namespace
