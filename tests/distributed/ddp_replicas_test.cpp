// Replicas start equal and stay equal; differing ones are named. Ranks that die.
#include "ddp_models.h"

#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/optim/optimizer.h>
#include <tessera/parallel/ddp.h>
#include <tessera/parallel/replicas.h>
#include <tessera/parallel/replicas_differ.h>
#include <tests/distributed/harness.h>
#include <tests/error_of.h>

#include <cmath>

namespace {

using namespace tessera;
using namespace tessera::testing;

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << "the text was: " << (text)

TEST(DdpReplicas, weights_and_buffers_become_rank_0s) {
  run_ranks(3, [](comm::World& world) {
    at::manual_seed(world.rank());
    BatchNormModel model;
    model.norm->running_mean.fill_(world.rank() + 5);
    model.norm->num_batches_tracked.fill_(world.rank() + 9);
    Ddp ddp(model);
    at::manual_seed(0);
    BatchNormModel first;
    EXPECT_TRUE(at::equal(model.in->weight, first.in->weight));
    EXPECT_TRUE(at::equal(model.head->bias, first.head->bias));
    EXPECT_TRUE(at::equal(model.norm->running_mean, at::full({16}, 5.0)));
    EXPECT_EQ(model.norm->num_batches_tracked.item<std::int64_t>(), 9);
    ddp.check_replicas();
  });
}

TEST(DdpReplicas, a_flipped_bit_is_named_with_the_rank_that_most_do_not_agree_with) {
  for (const int ranks : {2, 3, 4})
    for (int wrong = 0; wrong < ranks; ++wrong)
      run_ranks(ranks, [&](comm::World& world) {
        std::vector<parallel::NamedTensor> tensors;
        for (const char* name : {"first", "second", "third"}) tensors.push_back({name, at::arange(1000, at::kFloat)});
        parallel::require_same_bits(world.group(), tensors, "parameter");
        if (world.rank() == wrong) tensors[1].tensor.view(at::kInt)[700].bitwise_xor_(1 << 3);
        const std::string said =
            error_of<std::exception>([&] { parallel::require_same_bits(world.group(), tensors, "parameter"); });
        EXPECT_HAS(said, ranks == 2 ? std::string("parameter 'second' on rank 1 differs from that on rank 0: either "
                                                  "may be the wrong one")
                                    : concat("parameter 'second' on rank ", wrong, " differs from most "));
      });
}

TEST(DdpReplicas, a_group_of_some_ranks_is_named_by_the_ranks_of_the_job) {
  run_ranks(4, [](comm::World& world) {
    const comm::Group pair = world.new_group({2, 3}, "pair"), three = world.new_group({0, 2, 3}, "three");
    std::vector<parallel::NamedTensor> tensors = {{"weight", at::full({5}, world.rank() == 2 ? 1.0 : 0.0)}};
    const auto said = [&](const comm::Group& group) {
      return error_of<std::exception>([&] { parallel::require_same_bits(group, tensors, "parameter"); });
    };
    if (pair) EXPECT_HAS(said(pair), "'weight' on rank 3 differs from that on rank 2: either may be the wrong one");
    if (three) EXPECT_HAS(said(three), "'weight' on rank 2 differs from most ranks (0, 3)");
    if (pair) EXPECT_HAS(said(pair), "group 'pair' of ranks 2, 3 of the job");
  });
}

TEST(DdpReplicas, a_majority_tells_who_is_wrong) {
  const std::vector<std::string> ranks = {"2", "3", "6", "7"};
  using parallel::describe_odd_ranks;
  EXPECT_EQ(describe_odd_ranks({5, 5, 5, 5}, ranks), "");
  EXPECT_EQ(describe_odd_ranks({5}, {"4"}), "");
  EXPECT_EQ(describe_odd_ranks({9, 5, 5, 5}, ranks), " on rank 2 differs from most ranks (3, 6, 7)");
  EXPECT_EQ(describe_odd_ranks({9, 5, 8, 5, 5}, {"0", "1", "2", "3", "4"}),
            " on ranks 0, 2 differ from most ranks (1, 3, 4)");
  EXPECT_EQ(describe_odd_ranks({1, 2}, {"4", "6"}),
            " on rank 6 differs from that on rank 4: either may be the wrong one");
  EXPECT_EQ(describe_odd_ranks({1, 1, 2, 2}, ranks),
            " on ranks 6, 7 differs from that on ranks 2, 3: either may be the wrong one");
  EXPECT_EQ(describe_odd_ranks({1, 2, 3}, {"0", "1", "2"}),
            " on rank 1 differs from that on rank 0 and from that on rank 2: no majority shows which is right");
}

TEST(DdpReplicas, buffers_follow_rank_0_after_each_reduction) {
  for (const bool share : {true, false})
    run_ranks(2, [share](comm::World& world) {
      at::manual_seed(1);
      BatchNormModel model, alone;
      for (std::size_t i = 0; i < model.parameters().size(); ++i)
        alone.parameters()[i].set_data(model.parameters()[i].detach().clone());
      Ddp ddp(model, {.broadcast_buffers = share});
      const Batch batch = global_batch(0, 8);
      mean_loss(model, part(batch, world.rank(), 2)).backward();
      mean_loss(alone, part(batch, share ? 0 : world.rank(), 2));  // the rank whose statistics are expected
      EXPECT_TRUE(at::equal(model.norm->running_mean, alone.norm->running_mean)) << "broadcast_buffers " << share;
      EXPECT_TRUE(at::equal(model.norm->running_var, alone.norm->running_var));
      EXPECT_EQ(model.norm->num_batches_tracked.item<std::int64_t>(), 1);
    });
}

TEST(DdpReplicas, large_weights_are_sent_in_pieces) {
  run_ranks(2, [](comm::World& world) {
    at::manual_seed(world.rank());
    std::vector<at::Tensor> tensors = {at::randn({3}),
                                       at::randn({8 << 20}),
                                       at::randn({1000, 7}).t(),
                                       at::ones({}, at::kLong) * world.rank(),
                                       at::randn({5}, at::kDouble),
                                       at::zeros({0}),
                                       at::full({3}, world.rank() == 0, at::kBool)};
    parallel::broadcast_tensors(world.group(), tensors);
    at::manual_seed(0);
    EXPECT_TRUE(at::equal(tensors[0], at::randn({3})));
    EXPECT_TRUE(at::equal(tensors[1], at::randn({8 << 20})));
    EXPECT_TRUE(at::equal(tensors[2], at::randn({1000, 7}).t()));
    EXPECT_EQ(tensors[3].item<std::int64_t>(), 0);
    EXPECT_TRUE(at::equal(tensors[4], at::randn({5}, at::kDouble)));
    EXPECT_TRUE(tensors[6].all().item<bool>());
  });
}

// A module that differs on one rank in the way selected by `difference`.
struct Differing : torch::nn::Module {
  Differing(int difference, bool differs) {
    if (difference == 0) {
      register_parameter("weight", at::ones({4, differs ? 3 : 2}));
    } else if (difference == 1) {
      register_parameter("weight", at::ones({4}));
      register_parameter(differs ? "biaz" : "bias", at::ones({4}));
    } else if (difference == 2) {
      register_parameter("weight", at::ones({4}));
      if (!differs) register_parameter("extra", at::ones({4}));
    } else if (difference == 3) {
      register_parameter("weight", at::ones({4}, differs ? at::kDouble : at::kFloat));
    } else if (difference == 4) {
      register_parameter("weight", at::ones({4}));
      register_parameter("late", at::ones({4}), /*requires_grad=*/!differs);
    } else {
      register_parameter("weight", at::ones({4}));
      register_buffer("statistics", at::ones({differs ? 5 : 4}));
    }
  }
};

TEST(DdpReplicas, different_modules_are_told_with_rank_and_first_difference) {
  const std::vector<std::vector<std::string>> expected = {
      {"parameter 0 is 'weight' Float [4, 2]", "'weight' Float [4, 3]"},
      {"parameter 1 is 'bias'", "'biaz'"},
      {"parameter 1 is 'extra'", "no such parameter"},
      {"'weight' Float", "'weight' Double"},
      {"parameter 1 is 'late'", "(no gradient)"},
      {"buffer 0 is 'statistics' Float [4]", "Float [5]"}};
  for (std::size_t difference = 0; difference < expected.size(); ++difference) {
    const auto outcomes = run_ranks_outcomes(3, [&](comm::World& world) {
      Differing module(static_cast<int>(difference), world.rank() == 2);
      const std::string text = error_of<std::exception>([&] { Ddp ddp(module); });
      for (const std::string& part : expected[difference]) EXPECT_HAS(text, part);
      EXPECT_HAS(text, "on rank 2");
      post(text);
    });
    for (const auto& outcome : outcomes) {
      EXPECT_TRUE(outcome.ok) << outcome.error << (outcome.failures.empty() ? "" : outcome.failures[0].text);
      EXPECT_EQ(outcome.posted, outcomes[0].posted);
    }
  }
}

TEST(DdpReplicas, drift_is_found_by_name_and_rank) {
  run_ranks(3, [](comm::World& world) {
    at::manual_seed(1);
    SimpleModel model;
    Ddp ddp(model);
    ddp.check_replicas();
    {
      const at::NoGradGuard no_grad;
      // Flips one bit of one element on one rank.
      at::Tensor weight = model.named_parameters()["layers.2.weight"];
      if (world.rank() == 1) weight.view(at::kInt)[0][0].bitwise_xor_(1);
    }
    const std::string text = error_of<std::exception>([&] { ddp.check_replicas(); });
    EXPECT_HAS(text, "'layers.2.weight' on rank 1");
  });
}

TEST(DdpReplicas, a_nan_is_equal_to_itself) {
  run_ranks(2, [](comm::World&) {
    struct Nan : torch::nn::Module {
      at::Tensor weight = register_parameter("weight", at::full({3}, std::nan("")));
    } module;
    Ddp ddp(module);
    EXPECT_NO_THROW(ddp.check_replicas());
  });
}

TEST(DdpReplicas, bad_options_are_refused) {
  run_ranks(1, [](comm::World&) {
    SimpleModel model;
    EXPECT_HAS(error_of<std::exception>([&] { Ddp ddp(model, {.reduction = comm::Reduction::max}); }), "mean or sum");
    EXPECT_HAS(error_of<std::exception>([&] { Ddp ddp(model, {.bucket_mb = 0}); }), "must be above 0");
    EXPECT_HAS(error_of<std::exception>([&] { Ddp ddp(model, {.first_bucket_mb = std::nan("")}); }), "must be above 0");
    struct Empty : torch::nn::Module {
    } empty;
    EXPECT_HAS(error_of<std::exception>([&] { Ddp ddp(empty); }), "no parameter that requires grad");
  });
}

TEST(DdpReplicas, clipping_scales_gradients_to_the_norm) {
  run_ranks(2, [](comm::World& world) {
    at::manual_seed(1);
    SimpleModel model;
    Ddp ddp(model);
    const Batch mine = part(global_batch(0, 4), world.rank(), 2);
    (mean_loss(model, mine) * 100).backward();
    const double norm = ddp.clip_grad_norm(0);  // measures without clipping
    EXPECT_GT(norm, 1);
    EXPECT_EQ(ddp.clip_grad_norm(1), norm);
    EXPECT_NEAR(ddp.clip_grad_norm(1000), 1, 1e-5);
    ddp.zero_grad();
    EXPECT_EQ(ddp.clip_grad_norm(1), 0);
    for (const auto& [name, p] : ddp.parameters()) EXPECT_FALSE(p.grad().defined()) << name;
  });
}

TEST(DdpReplicas, a_group_of_some_ranks_is_enough) {
  run_ranks(3, [](comm::World& world) {
    const comm::Group pair = world.new_group({0, 2}, "pair");
    if (!pair) return;
    at::manual_seed(world.rank());
    struct One : torch::nn::Module {
      at::Tensor weight = register_parameter("weight", at::randn({3}));
    } module;
    Ddp ddp(module, {.group = pair});
    (module.weight * (world.rank() + 1)).sum().backward();
    EXPECT_TRUE(at::equal(module.weight.grad(), at::full({3}, 2.0)));
    ddp.check_replicas();
  });
}

TEST(DdpReplicas, a_dying_rank_is_an_error_and_no_hang) {
  RankOptions options;
  options.timeout_s = 300;
  options.end_after_failure = false;
  const Stopwatch watch;
  const auto outcomes = run_ranks_outcomes(
      3,
      [](comm::World& world) {
        at::manual_seed(1);
        SimpleModel model;
        Ddp ddp(model);
        for (int step = 0;; ++step) {
          if (world.rank() == 1 && step == 2) _exit(9);
          ddp.zero_grad();
          mean_loss(model, part(global_batch(step, 6), world.rank(), 3)).backward();
        }
      },
      options);
  EXPECT_LT(watch.seconds(), watch.limit(15)) << "the time-out is 180 s";
  EXPECT_HAS(outcomes[1].error, "exit status 9");
  for (const std::size_t rank : {0u, 2u}) {
    EXPECT_FALSE(outcomes[rank].killed_by_harness) << "rank " << rank << " hung";
    EXPECT_HAS(outcomes[rank].error, "all_reduce");
    EXPECT_HAS(outcomes[rank].error, "bucket 0");
  }
}

}  // namespace
