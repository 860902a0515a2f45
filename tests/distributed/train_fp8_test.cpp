// --fp8_format in whole runs: it takes effect, learns as well as bf16, sharding changes results no more than rounding
// does, and a resumed run equals the uninterrupted one.

#include "mesh_jobs.h"

#include <tessera/checkpoint/run_state.h>

#include <cmath>

namespace tessera::testing {
namespace {

class TrainFp8 : public TrainMesh {
 protected:
  void train(const std::string& output, const Mesh& mesh, const Words& more) const {
    train_on(output, mesh, Words{"--bf16"} + more);
  }
  std::vector<double> losses(const std::string& output) const {
    std::vector<double> all;
    const std::string metrics = path_join(path(output), "metrics.jsonl");
    for (const std::string& line : split(read_file(metrics), '\n')) {
      if (line.empty()) continue;
      const Value value = parse_json(line, metrics);
      if (const Value* loss = value.find("loss"); loss != nullptr && value.find("event") == nullptr)
        all.push_back(loss->as_real());
    }
    return all;
  }
  void refuses(const std::string& output, const Words& more, const std::string& why) const {
    const RunConfig run = run_config(output, one, Words{"--bf16"} + more);
    run_ranks(1, [&](comm::World&) {
      be_quiet();
      try {
        train::train(run, Value::make_object());
        ADD_FAILURE() << "expected an error";
      } catch (const Error& error) {
        EXPECT_EQ(error.exit_code(), ExitCode::bad_input);
        EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
      }
    });
  }
  /// The largest relative difference of the losses.
  double apart(const std::string& a, const std::string& b) const {
    const auto x = losses(a), y = losses(b);
    EXPECT_EQ(x.size(), y.size());
    EXPECT_EQ(x.size(), static_cast<std::size_t>(last_step));
    double most = 0;
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i)
      most = std::max(most, std::abs(x[i] - y[i]) / std::abs(y[i]));
    return most;
  }
};

const Mesh ddp{"ddp", 2, 2, {}}, tp{"tp", 2, 1, {"--tp_size", "2"}};

TEST_F(TrainFp8, EveryRecipeIsNearBf16AndActs) {
  train("bf16", one, {});
  std::vector<std::string> outputs = {"bf16"};
  for (const std::string recipe : {"delayed", "tensorwise", "blockwise", "mxfp8"}) {
    train(recipe, one, {"--fp8_format", "hybrid", "--fp8_recipe", recipe});
    EXPECT_LT(apart(recipe, "bf16"), 5e-3) << recipe;
    // Power-of-two scales round all but the smallest numbers of a block identically, whatever the block is.
    for (const std::string& other : outputs)
      if (recipe != "mxfp8" || other != "blockwise") {
        EXPECT_GT(apart(recipe, other), 1e-7) << recipe << " and " << other;
      }
    std::cout << recipe << " is " << apart(recipe, "bf16") << " from bf16\n";
    outputs.push_back(recipe);
  }
  // Keeping one of two blocks in bf16 changes the result.
  train("last", one, {"--fp8_format", "hybrid", "--num_layers_at_end_in_bf16", "1"});
  EXPECT_GT(apart("last", "delayed"), 1e-7);
  EXPECT_GT(apart("last", "bf16"), 1e-7);
}

// Without --bf16, everything but the 8-bit products is fp32.
TEST_F(TrainFp8, StandsBesideFloat32) {
  train_on("fp32", one, {});
  train("bf16", one, {});
  train("narrow", one, {"--fp8_format", "hybrid"});
  for (const std::string recipe : {"delayed", "tensorwise", "blockwise", "mxfp8"}) {
    train_on(recipe, one, {"--fp8_format", "hybrid", "--fp8_recipe", recipe});
    EXPECT_LT(apart(recipe, "fp32"), 5e-3) << recipe;
    EXPECT_GT(apart(recipe, "fp32"), 1e-6) << recipe << " acts";
    std::cout << recipe << " is " << apart(recipe, "fp32") << " from fp32\n";
  }
  EXPECT_GT(apart("narrow", "delayed"), 1e-7) << "what is not rounded to eight bits is not rounded to bf16";
  for (const Mesh& mesh : {ddp, tp, Mesh{"pp", 2, 1, {"--pp_size", "2", "--pipeline_schedule", "zb_h1"}}}) {
    train_on(mesh.name, mesh, {"--fp8_format", "hybrid"});
    EXPECT_LT(apart(mesh.name, "delayed"), 1e-3) << mesh.name;
    std::cout << mesh.name << " is " << apart(mesh.name, "delayed") << " from one process\n";
  }
}

TEST_F(TrainFp8, CutsOverRanksChangeNoMoreThanRounding) {
  for (const Mesh& mesh : {one, ddp, tp}) train(mesh.name, mesh, {"--fp8_format", "hybrid"});
  std::cout << "ddp " << apart("ddp", "one") << ", tp " << apart("tp", "one") << " from one process\n";
  EXPECT_LT(apart("ddp", "one"), 1e-3);
  EXPECT_LT(apart("tp", "one"), 1e-3);
}

TEST_F(TrainFp8, AResumedRunIsTheUninterruptedOne) {
  const Words fp8 = {"--fp8_format", "e4m3", "--fp8_amax_history_len", "4", "--fp8_amax_compute_algo", "max"};
  train("whole", ddp, fp8 + Words{"--save_steps", concat(saved_at)});
  const std::string saved = path(concat("whole/checkpoint-", saved_at));
  const Value history = checkpoint::read_run_state(saved).fp8_history;
  ASSERT_EQ(history.items().size(), static_cast<std::size_t>(saved_at));
  EXPECT_EQ(history.items()[0].items().size(), 2u * 7 * 3) << "two blocks of seven maps with three operands";
  for (const Value& number : history.items()[0].items()) EXPECT_GT(number.as_real(), 0);
  train("resumed", ddp, fp8 + Words{"--resume_from_checkpoint", saved});
  expect_same_model("resumed", "whole", "resumed", "", /*exactly=*/true);
  refuses("fewer", fp8 + Words{"--num_layers_at_end_in_bf16", "1", "--resume_from_checkpoint", saved},
          "maximum values of 14 linear maps in fp8, but this run has 7");
}

TEST_F(TrainFp8, NoBlockLeftIsRefused) {
  refuses("none", {"--fp8_format", "hybrid", "--num_layers_at_start_in_bf16", "2"},
          "the model has 2 blocks, of which the first 2 and the last 0 stay in bf16");
}

}  // namespace
}  // namespace tessera::testing
