// The reducer: overlap, bucket order, accumulation, unused parameters, clean state after errors.
#include "ddp_models.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tessera/base/clock.h>
#include <tessera/comm/recorder.h>
#include <tessera/optim/optimizer.h>
#include <tessera/parallel/ddp.h>
#include <tests/distributed/harness.h>
#include <tests/error_of.h>

#include <set>
#include <string_view>

namespace {

using namespace tessera;
using namespace tessera::testing;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double tiny_bucket = 1e-6;  // MiB: every parameter gets its own bucket

/// The recorded gradient reductions since the last clear().
std::vector<comm::Entry> reductions() {
  std::vector<comm::Entry> found;
  for (const comm::Entry& e : comm::recorder().last())
    if (std::string_view(e.tag).starts_with("gradients")) found.push_back(e);
  return found;
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << "the text was: " << (text)

std::unique_ptr<SimpleModel> simple_model(std::uint64_t seed = 3) {
  at::manual_seed(seed);
  return std::make_unique<SimpleModel>();
}

std::vector<at::Tensor> gradients_of(torch::nn::Module& module) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& p : module.parameters())
    result.push_back(p.grad().defined() ? p.grad().clone() : at::Tensor());
  return result;
}

void expect_close(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& want, double bound = 1e-6) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].defined(), want[i].defined()) << "parameter " << i;
    if (!got[i].defined()) continue;
    EXPECT_LE((got[i] - want[i]).abs().max().item<double>(), bound) << "parameter " << i;
  }
}

// The identity; its backward records the time. Before a layer, it marks the end of that layer's backward.
struct Clock : torch::autograd::Function<Clock> {
  static inline std::int64_t passed_ns = 0;
  static inline std::size_t reductions_started = 0;
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x.clone(); }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    passed_ns = monotonic_ns();
    reductions_started = reductions().size();
    return gradients;
  }
};

TEST(DdpReducer, buckets_are_reduced_while_backward_runs) {
  run_ranks(2, [](comm::World& world) {
    auto model = simple_model();
    Ddp ddp(*model, {.first_bucket_mb = tiny_bucket, .bucket_mb = tiny_bucket});
    for (int step = 0; step < 2; ++step) {
      comm::recorder().clear();
      ddp.zero_grad();
      // x -> Linear -> Clock -> ReLU -> Linear: at the clock, the second layer has its gradients and the first does
      // not.
      const Batch mine = part(global_batch(step, 8), world.rank(), 2);
      auto& layers = *model->layers;
      at::Tensor h = layers[0]->as<torch::nn::Linear>()->forward(mine.x);
      h = layers[2]->as<torch::nn::Linear>()->forward(at::relu(Clock::apply(h)));
      (h - mine.y).square().mean().backward();
      const auto found = reductions();
      ASSERT_EQ(found.size(), 4u);
      EXPECT_GE(Clock::reductions_started, 2u) << "step " << step;
      EXPECT_LT(found[0].start_ns, Clock::passed_ns);
      for (std::size_t b = 0; b < found.size(); ++b) {
        EXPECT_EQ(std::string(found[b].tag), concat("gradients, bucket ", b));
        if (b == 0) continue;
        EXPECT_GT(found[b].sequence, found[b - 1].sequence);
      }
    }
  });
}

// Registered and used in different orders; the order of use differs between ranks.
struct TwoBranches : Model {
  torch::nn::Linear first{12, 5}, second{12, 5}, third{12, 5};
  bool swapped = false;
  TwoBranches() {
    register_module("first", first);
    register_module("second", second);
    register_module("third", third);
  }
  // Backward runs in the reverse order of forward.
  at::Tensor forward(at::Tensor x) override {
    const at::Tensor c = third->forward(x);
    if (swapped) {
      const at::Tensor b = second->forward(x);
      return first->forward(x) + b + c;
    }
    const at::Tensor a = first->forward(x);
    return second->forward(x) + a + c;
  }
};

TEST(DdpReducer, buckets_follow_rank_0s_order_after_the_first_backward) {
  run_ranks(3, [](comm::World& world) {
    at::manual_seed(1);
    TwoBranches model, alone;
    for (std::size_t i = 0; i < model.parameters().size(); ++i)
      alone.parameters()[i].set_data(model.parameters()[i].detach().clone());
    model.swapped = world.rank() == 1;
    Ddp ddp(model, {.first_bucket_mb = tiny_bucket, .bucket_mb = tiny_bucket});
    const auto registered = ddp.buckets();
    EXPECT_EQ(registered.front(), std::vector<std::string>{"third.bias"});
    std::vector<std::vector<std::string>> followed;
    for (int step = 0; step < 3; ++step) {
      if (step != 1) ddp.zero_grad();  // in step 1 the reduced gradients move from the old buckets to the new ones
      if (step != 1) alone.zero_grad();
      const Batch batch = global_batch(step, 12);
      mean_loss(model, part(batch, world.rank(), 3)).backward();
      mean_loss(alone, batch).backward();
      expect_close(gradients_of(model), gradients_of(alone));
      if (step == 1) followed = ddp.buckets();
    }
    EXPECT_EQ(ddp.buckets(), followed);
    ASSERT_EQ(followed.size(), 6u);
    // Rank 0 computed third, first, second: its backward runs in the opposite order.
    EXPECT_EQ(followed[0][0].substr(0, 6), "second") << followed[0][0];
    EXPECT_EQ(followed[2][0].substr(0, 5), "first") << followed[2][0];
    EXPECT_EQ(followed[4][0].substr(0, 5), "third") << followed[4][0];
  });
}

TEST(DdpReducer, gradients_live_in_buckets_of_one_dtype) {
  run_ranks(2, [](comm::World& world) {
    struct Mixed : torch::nn::Module {
      at::Tensor a = register_parameter("a", at::ones({3})), b = register_parameter("b", at::ones({3}, at::kBFloat16)),
                 c = register_parameter("c", at::ones({3}, at::kDouble)),
                 d = register_parameter("d", at::ones({3}, at::kHalf));
    } mixed;
    Ddp ddp(mixed);
    EXPECT_EQ(ddp.buckets().size(), 4u);
    const double factor = world.rank() == 0 ? 1 : 3;
    ((mixed.a.to(at::kDouble) + mixed.b.to(at::kDouble) + mixed.c + mixed.d.to(at::kDouble)) * factor).sum().backward();
    for (const at::Tensor& p : mixed.parameters()) {
      EXPECT_EQ(p.grad().scalar_type(), p.scalar_type());
      EXPECT_TRUE(at::equal(p.grad(), at::full_like(p, 2)));
    }
  });
}

TEST(DdpReducer, gradients_of_a_bucket_share_memory_and_follow_the_weights_strides) {
  run_ranks(2, [](comm::World& world) {
    at::manual_seed(1);
    ConvModel model;
    model.conv->weight.set_data(at::randn({4, 1, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast));
    Ddp ddp(model);
    mean_loss(model, part(global_batch(0, 4), world.rank(), 2)).backward();
    EXPECT_EQ(ddp.buckets().size(), 1u);
    std::set<const void*> storages;
    for (const auto& [name, p] : ddp.parameters()) {
      storages.insert(p.grad().storage().data());
      EXPECT_EQ(p.grad().strides(), p.strides()) << name;
    }
    EXPECT_EQ(storages.size(), 1u);
    EXPECT_FALSE(model.frozen->weight.grad().defined());
  });
}

TEST(DdpReducer, no_sync_accumulates_and_sends_nothing) {
  run_ranks(2, [](comm::World& world) {
    auto model = simple_model(), alone = simple_model();
    Ddp ddp(*model);
    comm::recorder().clear();
    {
      const auto pause = ddp.no_sync();
      for (int m = 0; m < 2; ++m) mean_loss(*model, part(global_batch(m, 8), world.rank(), 2)).backward();
    }
    EXPECT_EQ(comm::recorder().last().size(), 0u);
    for (int m = 0; m < 2; ++m) mean_loss(*alone, part(global_batch(m, 8), world.rank(), 2)).backward();
    expect_close(gradients_of(*model), gradients_of(*alone), 0);
    mean_loss(*model, part(global_batch(2, 8), world.rank(), 2)).backward();
    EXPECT_EQ(reductions().size(), 1u);
    alone->zero_grad();
    for (int m = 0; m < 3; ++m) mean_loss(*alone, global_batch(m, 8)).backward();
    expect_close(gradients_of(*model), gradients_of(*alone));
  });
}

TEST(DdpReducer, a_second_backward_adds_as_in_one_process) {
  for (const auto reduction : {comm::Reduction::mean, comm::Reduction::sum})
    run_ranks(3, [reduction](comm::World& world) {
      auto model = simple_model(), alone = simple_model();
      Ddp ddp(*model, {.reduction = reduction});
      const double weight = reduction == comm::Reduction::sum ? 1.0 / 3 : 1;
      for (int m = 0; m < 3; ++m) {
        (mean_loss(*model, part(global_batch(m, 12), world.rank(), 3)) * weight).backward();
        mean_loss(*alone, global_batch(m, 12)).backward();
        expect_close(gradients_of(*model), gradients_of(*alone));
        // The backward of an unrelated graph changes nothing.
        at::ones({2}).requires_grad_(true).sum().backward();
        expect_close(gradients_of(*model), gradients_of(*alone));
      }
    });
}

TEST(DdpReducer, sums_that_are_in_place_count_once_when_a_pause_follows) {
  run_ranks(3, [](comm::World& world) {
    auto model = simple_model(), alone = simple_model();
    Ddp ddp(*model, {.reduction = comm::Reduction::sum});
    const auto backward = [&](int m) {
      (mean_loss(*model, part(global_batch(m, 12), world.rank(), 3)) / 3).backward();
      mean_loss(*alone, global_batch(m, 12)).backward();
    };
    backward(0);
    for (int m = 1; m < 4; ++m) {
      {
        const auto pause = ddp.no_sync();
        backward(m);
      }
      backward(m + 4);
      expect_close(gradients_of(*model), gradients_of(*alone));
    }
    model->zero_grad(/*set_to_none=*/false);  // zeroing in place must work as well
    alone->zero_grad();
    backward(9);
    expect_close(gradients_of(*model), gradients_of(*alone));
  });
}

// `branch` is used on the ranks with `take`, `never` on none.
struct Branching : Model {
  torch::nn::Linear trunk{12, 5}, branch{5, 5}, never{5, 5};
  bool take = false;
  Branching() {
    register_module("trunk", trunk);
    register_module("branch", branch);
    register_module("never", never);
  }
  at::Tensor forward(at::Tensor x) override {
    x = trunk->forward(x);
    return take ? branch->forward(x) : x;
  }
};

TEST(DdpReducer, unused_parameters_are_an_error_that_names_them_everywhere) {
  const auto outcomes = run_ranks_outcomes(3, [](comm::World& world) {
    at::manual_seed(1);
    Branching model;
    model.take = world.rank() != 1;
    Ddp ddp(model);
    const std::string text =
        error_of<std::exception>([&] { mean_loss(model, part(global_batch(0, 6), world.rank(), 3)).backward(); });
    EXPECT_HAS(text, "no gradient to 4 of 6 parameters");
    EXPECT_HAS(text, "'branch.weight' on rank 1");
    EXPECT_HAS(text, "'branch.bias' on rank 1");
    EXPECT_HAS(text, "'never.weight' on every rank");
    EXPECT_EQ(text.find("trunk"), std::string::npos) << text;
    EXPECT_HAS(text, "find_unused_parameters");
    for (const at::Tensor& p : model.parameters()) EXPECT_FALSE(p.grad().defined());
    post(text);
  });
  for (const auto& outcome : outcomes) {
    EXPECT_TRUE(outcome.ok) << outcome.error;
    EXPECT_EQ(outcome.posted, outcomes[0].posted);
  }
}

TEST(DdpReducer, unused_parameters_are_tolerated_when_asked) {
  run_ranks(3, [](comm::World& world) {
    at::manual_seed(1);
    Branching model;
    Ddp ddp(model, {.find_unused_parameters = true});
    for (int step = 0; step < 4; ++step) {
      ddp.zero_grad();
      model.take = world.rank() == step % 3;
      const Batch batch = global_batch(step, 6);
      mean_loss(model, part(batch, world.rank(), 3)).backward();
      // Only one rank uses the branch, which contributes a third to the mean.
      Branching alone;
      for (std::size_t i = 0; i < model.parameters().size(); ++i)
        alone.parameters()[i].set_data(model.parameters()[i].detach().clone());
      for (int r = 0; r < 3; ++r) {
        alone.take = r == step % 3;
        (mean_loss(alone, part(batch, r, 3)) / 3).backward();
      }
      expect_close(gradients_of(model), gradients_of(alone));
      EXPECT_FALSE(model.never->weight.grad().defined());
    }
    EXPECT_EQ(ddp.buckets().back().back().substr(0, 5), "never");
  });
}

TEST(DdpReducer, a_parameter_used_only_under_no_sync_counts) {
  run_ranks(2, [](comm::World& world) {
    at::manual_seed(1);
    struct Parts : Model {
      torch::nn::Linear a{12, 5}, b{12, 5};
      bool use_b = true;
      Parts() { register_module("a", a), register_module("b", b); }
      at::Tensor forward(at::Tensor x) override { return use_b ? a->forward(x) + b->forward(x) : a->forward(x); }
    } model;
    Ddp ddp(model);
    const double factor = world.rank() == 0 ? 1 : 3;
    {
      const auto pause = ddp.no_sync();
      (model.forward(at::ones({1, 12})).sum() * factor).backward();
    }
    model.use_b = false;
    (model.forward(at::ones({1, 12})).sum() * factor).backward();
    EXPECT_TRUE(at::equal(model.b->bias.grad(), at::full({5}, 2.0)));
    EXPECT_TRUE(at::equal(model.a->bias.grad(), at::full({5}, 4.0)));
  });
}

struct Throwing : torch::autograd::Function<Throwing> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x.clone(); }
  static variable_list backward(AutogradContext*, variable_list) { throw std::runtime_error("broken operation"); }
};

TEST(DdpReducer, a_failed_backward_leaves_a_clean_state) {
  run_ranks(2, [](comm::World& world) {
    auto model = simple_model(), alone = simple_model();
    Ddp ddp(*model, {.first_bucket_mb = tiny_bucket, .bucket_mb = tiny_bucket});
    auto& layers = *model->layers;
    for (int step = 0; step < 3; ++step) {
      const Batch batch = global_batch(step, 8);
      const Batch mine = part(batch, world.rank(), 2);
      // The reduction of the last layer's buckets has started when the first layer's backward fails.
      at::Tensor h = Throwing::apply(layers[0]->as<torch::nn::Linear>()->forward(mine.x));
      h = layers[2]->as<torch::nn::Linear>()->forward(at::relu(h));
      EXPECT_HAS(error_of<std::exception>([&] { (h - mine.y).square().mean().backward(); }), "broken operation");
      for (const at::Tensor& p : model->parameters()) EXPECT_FALSE(p.grad().defined());
      alone->zero_grad();
      mean_loss(*model, mine).backward();
      mean_loss(*alone, batch).backward();
      expect_close(gradients_of(*model), gradients_of(*alone));
    }
  });
}

// Runs a backward inside the backward, as reentrant checkpointing does.
struct Nested : torch::autograd::Function<Nested> {
  static inline std::function<void()> inside;
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x.clone(); }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    const at::AutoGradMode enable(true);
    inside();
    return gradients;
  }
};

TEST(DdpReducer, nested_backwards_belong_to_the_outer_one) {
  run_ranks(2, [](comm::World& world) {
    at::manual_seed(1);
    TwoBranches model;
    Ddp ddp(model);  // one bucket: the second gradient of first.bias arrives before its reduction
    const double factor = world.rank() == 0 ? 1 : 3;
    comm::recorder().clear();
    const at::Tensor x = at::ones({1, 12});
    Nested::inside = [&] { ((model.first->forward(x) + model.second->forward(x)).sum() * factor).backward(); };
    at::Tensor outer = model.third->forward(x);
    outer = outer + model.first->bias * factor;
    Nested::apply(outer).sum().backward();
    EXPECT_EQ(reductions().size(), 1u);
    EXPECT_TRUE(at::equal(model.first->bias.grad(), at::full({5}, 4.0)));
    EXPECT_TRUE(at::equal(model.second->bias.grad(), at::full({5}, 2.0)));
    EXPECT_TRUE(at::equal(model.third->bias.grad(), at::full({5}, 1.0)));

    // When the inner backward completes the bucket, the outer gradient arrives too late.
    ddp.zero_grad();
    Nested::inside = [&] { model.forward(x).sum().backward(); };
    EXPECT_HAS(error_of<std::exception>([&] { Nested::apply(model.first->bias * factor).sum().backward(); }),
               "'first.bias' received a second gradient");
  });
}

TEST(DdpReducer, what_cannot_be_reduced_is_named) {
  run_ranks(2, [](comm::World& world) {
    const Batch mine = part(global_batch(0, 4), world.rank(), 2);
    {
      auto model = simple_model();
      Ddp ddp(*model);
      model->to(at::kDouble);
      const std::string text = error_of<std::exception>(
          [&] { mean_loss(*model, {mine.x.to(at::kDouble), mine.y.to(at::kDouble)}).backward(); });
      EXPECT_HAS(text, "parameter 'layers.2.");
      EXPECT_HAS(text, "was Float");
      EXPECT_HAS(text, "its gradient is Double");
    }
    {
      auto model = simple_model();
      Ddp ddp(*model);
      const std::string text = error_of<std::exception>(
          [&] { mean_loss(*model, mine).backward({}, /*retain_graph=*/true, /*create_graph=*/true); });
      EXPECT_HAS(text, "create_graph");
      const at::Tensor loss = mean_loss(*model, mine);
      comm::recorder().clear();
      EXPECT_EQ(torch::autograd::grad({loss}, {model->parameters()[0]}).size(), 1u);  // local, no error
      EXPECT_EQ(comm::recorder().last().size(), 0u);
    }
    {
      struct Sparse : torch::nn::Module {
        at::Tensor weight = register_parameter("weight", at::ones({6, 2}));
      } model;
      Ddp ddp(model);
      const at::Tensor out = at::embedding(model.weight, at::arange(2), -1, false, /*sparse=*/true);
      EXPECT_HAS(error_of<std::exception>([&] { out.sum().backward(); }), "gradient of 'weight' is sparse");
    }
    {
      at::manual_seed(1);
      ConvModel model;
      Ddp ddp(model);
      model.frozen->weight.requires_grad_(true);
      EXPECT_HAS(error_of<std::exception>([&] { mean_loss(model, mine).backward(); }), "'frozen.weight' was frozen");
    }
    {
      // Tying by assignment leaves the old weight registered and unused.
      struct Tied : torch::nn::Module {
        torch::nn::Linear a{4, 4}, b{4, 4};
        Tied() { register_module("a", a), register_module("b", b), b->weight = a->weight; }
      } model;
      Ddp ddp(model);
      EXPECT_HAS(
          error_of<std::exception>([&] { model.b->forward(model.a->forward(at::ones({1, 4}))).sum().backward(); }),
          "'b.weight' on every rank");
    }
  });
}

TEST(DdpReducer, ddp_ends_and_module_lives_on) {
  run_ranks(2, [](comm::World& world) {
    auto model = simple_model();
    const Batch mine = part(global_batch(0, 4), world.rank(), 2);
    {
      Ddp first(*model);
      Ddp ddp(std::move(first));
      mean_loss(*model, mine).backward();
    }
    comm::recorder().clear();
    model->zero_grad();
    mean_loss(*model, mine).backward();
    EXPECT_EQ(comm::recorder().last().size(), 0u);
    Ddp again(*model);
    model->zero_grad();
    mean_loss(*model, mine).backward();
    EXPECT_EQ(reductions().size(), 1u);
  });
}

}  // namespace
