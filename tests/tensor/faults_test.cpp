// A rank of tp dies, hangs or diverges: the other ranks of its axis report it, by the axis's name, in time.
#include <tests/tensor/user_nets.h>

#include <chrono>
#include <cstdio>
#include <thread>

namespace {

using namespace tessera;
using namespace tessera::testing;

constexpr int when = 2;  // the step of the fault

struct Fault {
  std::string name;
  std::vector<std::string> told;  ///< words that rank 0's error contains
  std::function<void(const User&, at::Tensor& ids)> act;
  double timeout_s = 180;
  bool hangs = false;  ///< only the time-out reveals it
};

/// Ranks 0 and 1 hold parts of the same layers (tp 0), 2 and 3 the replica's parts (tp 2); rank 1 misbehaves.
void expect_named(const Fault& fault, bool sequence_parallel) {
  RankOptions options;
  options.timeout_s = 300;
  options.init.timeout_seconds = fault.timeout_s;
  options.end_after_failure = false;
  const auto outcomes = run_ranks_outcomes(
      4,
      [&](comm::World& world) {
        const layout::Mesh mesh = layout::parse_mesh("dp=2,tp=2");
        const User user = heads_net();
        const TensorParallel parts(*user.module, {.group = comm::mesh_group(world, mesh, std::vector{layout::Axis::tp}),
                                                  .plan = heads_plan(),
                                                  .sequence_parallel = sequence_parallel});
        Stopwatch watch;
        try {
          for (int step = 0; step < when + 2; ++step) {
            at::Tensor ids = at::arange(16).view({2, 8});
            if (step == when) {
              world.group().barrier().wait();
              watch = Stopwatch();
              if (world.rank() == 1) fault.act(user, ids);
            }
            if (world.rank() < 2 || step < when) user.logits(ids).square().mean().backward();
          }
        } catch (const std::exception& error) {
          post(concat(watch.seconds(), " ", watch.limit(2), " ", error.what()));
          throw;
        }
      },
      options);
  const std::string what = concat(fault.name, sequence_parallel ? " with sequence parallelism" : "");
  ASSERT_EQ(outcomes[0].posted.size(), 1u) << what << ": no error on rank 0";
  const std::string& text = outcomes[0].posted[0];
  for (const std::string& word : fault.told)
    EXPECT_NE(text.find(word), std::string::npos) << what << ": '" << word << "' is not in: " << text;
  // Measured from the fault to the error; for a rank that hangs, from the time-out.
  const double limit = std::stod(text.substr(text.find(' ')));
  EXPECT_LE(std::stod(text), limit + (fault.hangs ? fault.timeout_s : 0)) << what;
  std::printf("  %-56s %.2f s\n", what.c_str(), std::stod(text));
}

void expect_named_in_both(const Fault& fault) {
  for (const bool sequence_parallel : {false, true}) expect_named(fault, sequence_parallel);
}

TEST(TensorFaults, a_rank_that_dies) {
  expect_named_in_both({"dies", {"'tp 0'", "rank 1"}, [](const User&, at::Tensor&) { _exit(9); }});
}

TEST(TensorFaults, a_rank_that_hangs) {
  const double timeout = patience(1);
  expect_named_in_both(
      {.name = "hangs",
       .told = {"'tp 0'", "rank 1", "tag '"},
       .act = [=](const User&,
                  at::Tensor&) { std::this_thread::sleep_for(std::chrono::duration<double>(1.5 * timeout)); },
       .timeout_s = timeout,
       .hangs = true});
}

TEST(TensorFaults, a_rank_with_another_shape) {
  expect_named_in_both({"other shape",
                        {"'tp 0'", "rank 0 (pid", "rank 1 (pid", "x float32", "tag 'output of rows'"},
                        [](const User&, at::Tensor& ids) { ids = ids.narrow(0, 0, 1); }});
}

TEST(TensorFaults, a_rank_that_throws) {
  expect_named_in_both(
      {"throws", {"rank 1"}, [](const User&, at::Tensor&) { throw std::runtime_error("a problem of its own"); }});
}

TEST(TensorFaults, a_rank_that_leaves_a_layer_out) {
  expect_named_in_both(
      {"leaves a layer out", {"'tp 0'", "rank 0 (pid", "rank 1 (pid"}, [](const User& user, at::Tensor&) {
         auto& net = static_cast<HeadsNetImpl&>(*user.module);
         const auto first = net.blocks->ptr(0);
         net.blocks = torch::nn::ModuleList();
         net.blocks->push_back(first);
       }});
}

}  // namespace
