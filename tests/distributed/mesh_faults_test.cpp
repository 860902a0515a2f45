// Ranks of a mesh that die, differ, or compute NaN: within two seconds, every rank's error names the axis it waited on
// and its position in the mesh.

#include "resume_jobs.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <thread>

#include <tessera/base/clock.h>
#include <tessera/comm/heartbeat.h>
#include <tessera/comm/mesh_groups.h>
#include <tessera/parallel/fully_shard.h>
#include <tessera/parallel/tensor_parallel.h>

namespace tessera::testing {
namespace {

using layout::Axis;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

class MeshFaults : public ResumeJobs {
 protected:
  /// Four ranks train until rank `victim` is killed; the others end with an error within two seconds.
  std::vector<RankOutcome> kill_while_training(const Words& mesh, int victim) const {
    const RunConfig run =
        config("out", 1'000'000,
               Words{"--config_name", "llama-tiny", "--config_overrides",
                     "num_hidden_layers=4,hidden_size=32,num_attention_heads=4,num_key_value_heads=2,head_dim=8,"
                     "intermediate_size=48,vocab_size=257,max_position_embeddings=16",
                     "--logging_steps", "100000", "--save_strategy", "no", "--overwrite_output_dir"} +
                   mesh);
    RankOptions options = time_limit(300);
    options.end_after_failure = false;
    const Stopwatch whole;
    auto outcomes = run_ranks_outcomes(
        4,
        [&](comm::World& world) {
          be_quiet();
          const auto killed_at = [&] { return comm::heartbeat().slot().step.load() >= 5; };
          std::jthread killer;
          if (world.rank() == victim)
            killer = std::jthread([&] {
              while (!killed_at()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
              post(concat(monotonic_ns()));
              raise(SIGKILL);
            });
          try {
            train::train(run, Value::make_object());
          } catch (const Error& error) {
            post(concat(monotonic_ns()));
            throw;
          }
        },
        options);
    const auto posted = [&](int r) { return outcomes[static_cast<std::size_t>(r)].posted; };
    EXPECT_EQ(posted(victim).size(), 1u) << outcomes[static_cast<std::size_t>(victim)].error;
    for (int r = 0; r < 4; ++r) {
      if (r == victim || posted(victim).empty()) continue;
      EXPECT_EQ(posted(r).size(), 1u) << "rank " << r
                                      << " did not end by an error: " << outcomes[static_cast<std::size_t>(r)].error;
      if (posted(r).empty()) continue;
      EXPECT_LT((std::stod(posted(r)[0]) - std::stod(posted(victim)[0])) * 1e-9, whole.limit(2)) << "rank " << r;
    }
    return outcomes;
  }
};

/// Ranks that do not fail wait for the others until the harness kills them, so this time is short.
RankOptions short_grace() {
  RankOptions options;
  options.grace_s = 0.3;
  return options;
}

struct Net : torch::nn::Module {
  torch::nn::Linear up{register_module("up", torch::nn::Linear(8, 12))};
  torch::nn::Linear down{register_module("down", torch::nn::Linear(12, 6))};
  at::Tensor forward(const at::Tensor& x, bool spoils_gradient = false) {
    const at::Tensor inner = at::linear(x, up->weight, up->bias);
    if (spoils_gradient) inner.register_hook([](const at::Tensor& gradient) { return gradient / 0; });
    return at::linear(at::gelu(inner), down->weight, down->bias);
  }
};
const TensorPlan plan = {{"up", TensorStyle::colwise}, {"down", TensorStyle::rowwise}};

TEST_F(MeshFaults, a_tensor_parallel_rank_that_is_killed_while_it_trains) {
  const auto outcomes = kill_while_training({"--tp_size", "2"}, 3);
  for (int r = 0; r < 3; ++r) {
    const std::string& error = outcomes[static_cast<std::size_t>(r)].error;
    EXPECT_TRUE(has(error, concat("dp_replicate ", r / 2, ", tp ", r % 2))) << error;
    EXPECT_TRUE(has(error, "of group 'tp ") || has(error, "of group 'dp_replicate ")) << error;
  }
  // Ranks 1 and 2 wait for rank 3 itself, one along dp, the other along tp; rank 0 waits for them.
  EXPECT_TRUE(has(outcomes[2].error, "rank 1 of the group = rank 3 of the job")) << outcomes[2].error;
}

TEST_F(MeshFaults, a_stage_that_is_killed_while_it_trains) {
  int victim = 0;
  for (const char* schedule : {"1f1b", "zb_h1", "gpipe", "zb_h2"}) {
    const auto outcomes =
        kill_while_training({"--pp_size", "4", "--pipeline_schedule", schedule, "--per_device_train_batch_size", "1",
                             "--gradient_accumulation_steps", "4"},
                            victim);
    int named = 0;
    for (int r = 0; r < 4; ++r) {
      if (r == victim) continue;
      const std::string& error = outcomes[static_cast<std::size_t>(r)].error;
      EXPECT_TRUE(has(error, concat("(pp ", r)) || has(error, "of group 'world'")) << error;
      named += has(error, concat("= rank ", victim, " of the job")) || has(error, concat("rank ", victim, " "));
    }
    EXPECT_GE(named, 1) << schedule;
    ++victim;
  }
}

TEST_F(MeshFaults, ranks_that_differ_in_shape) {
  const auto outcomes = run_ranks_outcomes(
      4,
      [](comm::World& world) {
        const layout::Mesh mesh = layout::parse_mesh("dp=2,tp=2");
        comm::heartbeat().set_place(layout::describe_rank(mesh, world.rank()));
        at::manual_seed(1);
        Net net;
        const TensorParallel cut(net, {.group = comm::MeshGroups(world, mesh).of(Axis::tp), .plan = plan});
        net.forward(at::ones({2, world.rank() == 3 ? 5 : 4, 8}));
      },
      short_grace());
  for (const int r : {2, 3}) {
    const std::string& error = outcomes[static_cast<std::size_t>(r)].error;
    EXPECT_TRUE(has(error, "of group 'tp 2' (2 ranks, 48 x float32")) << error;
    EXPECT_TRUE(has(error, "of group 'tp 2' (2 ranks, 60 x float32")) << error;
    EXPECT_TRUE(has(error, concat("dp_shard 1, tp ", r - 2))) << error;
  }
}

// A non-finite element in one rank's part: the norm on every rank is not finite, and the error names its origin.
TEST_F(MeshFaults, a_gradient_that_is_not_finite) {
  const auto outcomes = run_ranks_outcomes(4, [](comm::World& world) {
    const layout::Mesh mesh = layout::parse_mesh("dp=2,tp=2");
    comm::heartbeat().set_place(layout::describe_rank(mesh, world.rank()));
    const comm::MeshGroups groups(world, mesh);
    at::manual_seed(1);
    Net net;
    const TensorParallel cut(net, {.group = groups.of(Axis::tp), .plan = plan});
    Sharded fsdp(net, {.group = groups.of(Axis::dp_shard), .wrap = by_class({"Linear"})});
    net.forward(at::ones({2, 4, 8}), world.rank() == 3).sum().backward();
    fsdp.clip_grad_norm(1.0);
  });
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_TRUE(has(outcome.error, "first on rank 3 (dp_shard 1, tp 1) in 'up.")) << outcome.error;
  }
}

}  // namespace
}  // namespace tessera::testing
