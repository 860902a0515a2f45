// Unsupported uses of tensor parallelism are refused with the parameter, its axis and a remedy; none gives wrong
// numbers.
#include <tests/error_of.h>
#include <tests/tensor/user_nets.h>

#include <torch/nn/init.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/lbfgs.h>
#include <torch/serialize.h>

#include <tessera/parallel/deferred/deferred.h>

#include <limits>

namespace {

using namespace tessera;
using namespace tessera::testing;
using enum TensorStyle;

/// Runs `act` on two ranks: rank 0's error must contain `text`. Rank 1 gets the error, too, or stops because of it.
void expect_refused(const std::string& text, const std::function<void(comm::World&)>& act) {
  run_ranks(2, [&](comm::World& world) {
    bool thrown = false;
    try {
      act(world);
    } catch (const Error& error) {
      thrown = true;
      EXPECT_EQ(error.exit_code(), ExitCode::bad_input) << error.what();
      if (*error.what() != '\0') {
        EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
      } else {
        EXPECT_EQ(world.rank(), 1) << "another rank gives the reason";
      }
    }
    EXPECT_TRUE(thrown) << "no error was thrown; expected: " << text;
  });
}

/// Cuts a net and runs one forward with gradients.
void expect_use_refused(const std::string& text, const std::function<void(const User&)>& use) {
  expect_refused(text, [&](comm::World&) {
    const User user = heads_net();
    const TensorParallel parts(*user.module, {.plan = heads_plan()});
    use(user);
  });
}

at::Tensor parameter(const User& user, const std::string& name) { return user.module->named_parameters()[name]; }
at::Tensor some_loss(const User& user) { return net_loss(user, 0, 0, net_rows); }

TensorPlan without(TensorPlan plan, const std::string& pattern) {
  std::erase_if(plan, [&](const layout::TensorRule& rule) { return rule.pattern == pattern; });
  return plan;
}

TEST(TensorMisuse, of_plans) {
  const auto cut = [](TensorPlan plan) {
    return [plan](comm::World&) { const TensorParallel parts(*heads_net().module, {.plan = plan}); };
  };
  expect_refused("no parameter matches 'token.wieght'; did you mean 'token.weight'",
                 cut({{"token.wieght", embedding_rowwise}}));
  expect_refused("blocks.0.qkv.weight has 3 heads, which 2 ranks neither divide nor are a multiple of",
                 cut({{"qkv", colwise, 1, 3}}));
  expect_refused("which do not form 5 equal blocks (packed_colwise:5)", cut({{"qkv", colwise, 5}}));
  expect_refused("norm1.weight has 1 dimensions and is not a table", cut({{"blocks.0.norm1", embedding_rowwise}}));
  // Ranks with different modules or plans are refused.
  expect_refused("ranks of world have different modules or plans", [](comm::World& world) {
    TensorPlan plan = heads_plan();
    if (world.rank() == 1) plan[1].style = rowwise;
    const TensorParallel parts(*heads_net().module, {.plan = plan});
  });
  expect_refused("rank 0 has 'no sequence_parallel', rank 1 'sequence_parallel'", [](comm::World& world) {
    const TensorParallel parts(*heads_net().module, {.plan = heads_plan(), .sequence_parallel = world.rank() == 1});
  });
  expect_refused("parameter 'place.weight' on rank 1 differs from that on rank 0", [](comm::World& world) {
    const User user = heads_net();
    if (world.rank() == 1) parameter(user, "place.weight").detach()[3][2] += 1;
    const TensorParallel parts(*user.module, {.plan = heads_plan()});
  });
}

TEST(TensorMisuse, of_the_order) {
  const auto cut = [](const User& user) { const TensorParallel parts(*user.module, {.plan = heads_plan()}); };
  expect_refused("is already cut", [&](comm::World&) {
    const User user = heads_net();
    const TensorParallel parts(*user.module, {.plan = heads_plan()});
    cut(user);
  });
  for (const char* strategy : {"ddp", "zero1", "full_shard"})
    expect_refused("cut the", [&](comm::World&) {
      const User user = heads_net();
      const Sharded sharded(*user.module, {.strategy = strategy});
      cut(user);
    });
  expect_refused("already has a gradient of the whole parameter", [&](comm::World&) {
    const User user = heads_net();
    some_loss(user).backward();
    cut(user);
  });
}

TEST(TensorMisuse, of_sharded_modules) {
  expect_refused("is already sharded: cut the whole module first", [](comm::World&) {
    const auto net = std::make_shared<HeadsNetImpl>();
    const Sharded sharded(*net, {.strategy = "full_shard"});
    const TensorParallel parts(*net, {.plan = heads_plan()});
  });
}

// Keys other than the queries: torch::nn::MultiheadAttention slices its packed matrix.
TEST(TensorMisuse, of_attention_across_sequences) {
  expect_refused("a view of a parameter that tensor parallelism has cut", [](comm::World&) {
    at::manual_seed(4);
    torch::nn::MultiheadAttention attention(torch::nn::MultiheadAttentionOptions(8, 2));
    const TensorParallel parts(*attention, {.plan = {{"in_proj_weight", colwise_gather_output, 3}}});
    const at::Tensor query = at::ones({3, 1, 8}), key = at::zeros({3, 1, 8});
    (void)attention->forward(query, key, key);
  });
}

// Missing rules: a whole parameter is used on activations that are cut.
TEST(TensorMisuse, of_missing_rules) {
  const auto train = [](const TensorPlan& plan, bool sequence_parallel) {
    return [plan, sequence_parallel](comm::World&) {
      const User user = heads_net({.places = false});
      const TensorParallel parts(*user.module, {.plan = plan, .sequence_parallel = sequence_parallel});
      some_loss(user).backward();
    };
  };
  TensorPlan plan = heads_plan();
  plan[3].pattern = "token";
  expect_refused("is used on activations that are cut. Give it the style sequence_parallel",
                 train(without(plan, "norm*"), true));
  TensorPlan cut_norm = without(plan, "norm*");
  cut_norm.push_back({"norm1|norm2", sequence_parallel});
  expect_refused("'norm.weight' is whole on every rank of 'world', but its gradients differ", train(cut_norm, true));
  expect_refused("(cut in dimension 1 over 'world') has, as rowwise, 32 of 64 inputs on this rank but was given 64",
                 train(without(plan, "up"), false));
  // Half of a layer is not cut: its matrix expects all inputs but gets only this rank's.
  run_ranks(2, [&](comm::World& world) {
    EXPECT_ANY_THROW(train({{"up", colwise}}, false)(world));
    EXPECT_ANY_THROW(train(without(plan, "head"), true)(world)) << "logits of this rank's tokens";
  });
}

// Uninformative gradients (0 or overflow) neither prove that a rule is missing nor hide that it is.
TEST(TensorMisuse, of_missing_rules_after_a_step_that_says_nothing) {
  TensorPlan plan = heads_plan();
  plan[3].pattern = "token";
  expect_refused("is used on activations that are cut. Give it the style sequence_parallel", [&](comm::World&) {
    const User user = heads_net({.places = false});
    const TensorParallel parts(*user.module, {.plan = without(plan, "norm*"), .sequence_parallel = true});
    try {
      (some_loss(user) * 0).backward();
      (some_loss(user) * std::numeric_limits<double>::infinity()).backward();
    } catch (const Error& error) {
      ADD_FAILURE() << "an uninformative step: " << error.what();
    }
    user.module->zero_grad();
    some_loss(user).backward();
  });
}

TEST(TensorMisuse, of_tables) {
  expect_refused("is an embedding but cut as rowwise: give it the style embedding_rowwise", [](comm::World&) {
    const User user = heads_net();
    TensorPlan plan = heads_plan();
    plan[3].style = rowwise;
    const TensorParallel parts(*user.module, {.plan = plan});
    (void)user.logits(at::zeros({2, 8}, at::kLong));
  });
  expect_refused("runs before any embedding has distributed the tokens", [](comm::World&) {
    const User user = heads_net();
    const TensorParallel parts(*user.module,
                               {.plan = {{"qkv", colwise, 3, 4}, {"out", rowwise}}, .sequence_parallel = true});
    (void)user.logits(at::zeros({2, 8}, at::kLong));
  });
}

TEST(TensorMisuse, of_activations_in_sequence_parallelism) {
  expect_refused("activations must stay [B, T, ...] between layers", [](comm::World&) {
    const User user = attention_net();
    TensorPlan plan = attention_plan();
    plan[4].pattern = "token|place";
    plan.push_back({"norm*", sequence_parallel});
    const TensorParallel parts(*user.module, {.plan = plan, .sequence_parallel = true});
    (void)user.logits(at::zeros({2, 8}, at::kLong));
  });
  expect_refused("with T a multiple of the number of ranks; pad the sequence or remove sequence_parallel",
                 [](comm::World&) {
                   const User user = heads_net();
                   const TensorParallel parts(*user.module, {.plan = heads_plan(), .sequence_parallel = true});
                   (void)user.logits(at::zeros({2, 7}, at::kLong));
                 });
}

TEST(TensorMisuse, of_operators_on_a_part) {
  const std::string named = "'blocks.0.up.weight' (cut in dimension 0 over 'world')";
  const auto of_weight = [](const std::function<at::Tensor(const at::Tensor&)>& use) {
    return [use](const User& user) { (void)use(parameter(user, "blocks.0.up.weight")); };
  };
  using T = const at::Tensor&;
  const std::vector<std::pair<const char*, std::function<at::Tensor(T)>>> uses = {
      {"aten::norm", [](T w) { return w.norm(); }},
      {"aten::linalg_vector_norm", [](T w) { return at::linalg_vector_norm(w); }},
      {"aten::sum", [](T w) { return w.square().sum(); }},  // a penalty
      {"aten::mean", [](T w) { return w.abs().mean(); }},
      {"aten::sum", [](T w) { return w.detach().sum(); }},
      {"aten::sum",
       [](T w) {
         const at::NoGradGuard no_grad;
         return w.square().sum();
       }},
      {"aten::max", [](T w) { return w.max(); }},
      {"aten::cat", [](T w) { return at::cat({at::zeros({1, 16}), w}); }},
      {"aten::stack", [](T w) { return at::stack({w, w}); }},
      {"aten::softmax", [](T w) { return w.softmax(0); }},
      {"aten::einsum", [](T w) { return at::einsum("bi,oi->bo", {at::ones({2, 16}), w}); }},
      {"aten::bmm", [](T w) { return at::bmm(at::ones({1, 2, 64}), w.unsqueeze(0)); }},
      {"aten::mv", [](T w) { return at::mv(w, at::ones({16})); }},
      {"aten::matmul", [](T w) { return at::matmul(w, at::ones({16, 2})); }},  // W x
      {"aten::sort", [](T w) { return std::get<0>(w.sort(0)); }},
      {"aten::flip", [](T w) { return w.flip(0); }},
      {"aten::index_select", [](T w) { return w.index_select(0, at::tensor({3})); }},
      {"aten::embedding", [](T w) { return at::embedding(w.t(), at::tensor({3})); }},
      {"aten::conv2d", [](T w) { return at::conv2d(at::ones({1, 16, 2, 2}), w.view({-1, 16, 1, 1})); }},
      {"would draw different values into", [](T w) { return torch::nn::init::normal_(w); }},
      {"would draw different values into", [](T w) { return torch::nn::init::xavier_uniform_(w); }},
      {"would draw different values into", [](T w) { return at::randn_like(w); }},
      {"aten::_foreach_norm", [](T w) { return at::_foreach_norm({w})[0]; }},
      {"aten::sum", [](T w) { return at::_foreach_mul({w, w}, 2.0)[1].sum(); }},
  };
  run_ranks(2, [&](comm::World&) {
    const User user = heads_net();
    const TensorParallel parts(*user.module, {.plan = heads_plan()});
    const at::Tensor weight = parameter(user, "blocks.0.up.weight");
    for (const auto& [text, use] : uses) {
      const std::string told = error_of([&] { (void)use(weight); });
      EXPECT_NE(told.find(text), std::string::npos) << text << ": " << told;
      // A tensor computed from the whole parameter carries its name; one computed from a view does not.
      const bool is_named = told.find(named) != std::string::npos;
      EXPECT_TRUE(is_named || told.find("a view of a parameter that tensor parallelism has cut") != std::string::npos)
          << told;
    }
    EXPECT_NE(error_of([&] { (void)weight.norm(); }).find(named), std::string::npos);
    EXPECT_NE(error_of([&] { (void)weight.square().sum(); }).find(named), std::string::npos);
  });
  // A part of a part: rows of a matrix that is cut by rows.
  expect_use_refused("a view of a parameter that tensor parallelism has cut",
                     of_weight([](T w) { return at::linear(at::ones({2, 16}), w.slice(0, 0, 8)); }));
  expect_use_refused("is used as a matrix [in, out], but its rule 'up' specifies [out, in]: set `transposed`",
                     of_weight([](T w) { return at::ones({2, 32}).matmul(w); }));
  // The bias is a vector that is cut.
  expect_use_refused("'blocks.0.up.bias' (cut in dimension 0 over 'world')",
                     [](const User& user) { (void)parameter(user, "blocks.0.up.bias").norm(); });
  expect_use_refused("'blocks.0.up.bias' (cut in dimension 0 over 'world')",
                     [](const User& user) { (void)parameter(user, "blocks.0.up.bias").square().sum(); });
  expect_use_refused("sparse gradients cannot be cut", [](const User& user) {
    (void)at::embedding(parameter(user, "token.weight"), at::tensor({1}), -1, false, /*sparse=*/true);
  });
  expect_use_refused("token.weight has 37 rows, but ids range from 0 to 37",
                     [](const User& user) { (void)user.logits(at::tensor({0, 37}).view({1, 2})); });
}

TEST(TensorMisuse, of_gradients_of_parts) {
  const std::string named = "(cut in dimension 0 over 'world')";
  expect_use_refused(named, [](const User& user) {
    some_loss(user).backward();
    torch::nn::utils::clip_grad_norm_(user.module->parameters(), 1.0);
  });
  expect_use_refused("Sharded::grad_norm and clip_grad_norm for norms", [](const User& user) {
    some_loss(user).backward();
    (void)parameter(user, "head.weight").grad().norm();
  });
  expect_use_refused("operator aten::cat was given a view of a parameter that tensor parallelism has cut",
                     [](const User& user) {
                       torch::optim::LBFGS optimizer(user.module->parameters());
                       optimizer.step([&] {
                         optimizer.zero_grad();
                         const at::Tensor loss = some_loss(user);
                         loss.backward();
                         return loss;
                       });
                     });
}

TEST(TensorMisuse, of_copies_and_replaced_values) {
  expect_use_refused("a copy of 'token.weight'", [](const User& user) {
    (void)std::dynamic_pointer_cast<HeadsNetImpl>(user.module->clone())->forward(at::zeros({1, 2}, at::kLong));
  });
  expect_use_refused(
      "'token.weight' (cut in dimension 0 over 'world') was replaced by [37, 16] (torch::load(), set_data())",
      [](const User& user) {
        std::ostringstream out;
        torch::save(heads_net().module, out);
        std::istringstream in(out.str());
        auto module = user.module;
        torch::load(module, in);
        some_loss(user).backward();
      });
}

// The remedy: an engine over one rank knows how the parameters are divided.
TEST(TensorMisuse, norms_are_the_engines) {
  double wanted = 0;
  {
    const User user = heads_net();
    some_loss(user).backward();
    wanted = torch::nn::utils::clip_grad_norm_(user.module->parameters(), 0.1);
  }
  run_ranks(2, [&](comm::World& world) {
    const layout::Mesh mesh = layout::parse_mesh("tp=2");
    const User user = heads_net();
    const TensorParallel parts(*user.module, {.plan = heads_plan()});
    Sharded engine(*user.module,
                   {.strategy = "ddp", .group = comm::mesh_group(world, mesh, std::vector{layout::Axis::dp_shard})});
    some_loss(user).backward();
    EXPECT_NEAR(engine.clip_grad_norm(0.1) / wanted, 1, 1e-5);
    EXPECT_NEAR(engine.grad_norm(), 0.1, 1e-5);
  });
}

}  // namespace
