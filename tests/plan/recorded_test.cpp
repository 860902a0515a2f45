// A recorded module: planned layer by layer, or refused if the record is incomplete.

#include <tessera/base/file.h>
#include <tessera/plan/from_config.h>
#include <tessera/plan/presets.h>
#include <tessera/plan/recorded.h>
#include <tessera/plan/search.h>

#include <gtest/gtest.h>
#include <tessera/config/resolve/resolve.h>
#include <tests/error_of.h>

#include <filesystem>

#include <unistd.h>

namespace tessera::plan {
namespace {

using testing::error_of;

RecordedLayer layer(const std::string& name, double elements, double flop) {
  RecordedLayer layer;
  layer.name = name;
  layer.parameters = layer.trained = elements;
  layer.saved_bytes = 4e6;
  layer.input_bytes = 4e5;
  layer.forward.flop = flop;
  layer.forward.pass_bytes = 1e6;
  layer.forward.passes = 10;
  layer.forward.add(RecordedProduct{100, 100, flop / 2e4});
  layer.backward = layer.forward;
  layer.backward.flop *= 2;
  layer.backward.products[0].times = 2;
  return layer;
}

/// Eight layers; the last one is four times as large as the others.
RecordedStep uneven() {
  RecordedStep step;
  step.name = "Net";
  step.rows = 2;
  step.row_tokens = 64;
  step.moment_bytes = 1e6;
  step.begin = layer("begin", 1e6, 1e6);
  for (int i = 0; i < 8; ++i) step.layers.push_back(layer(concat("blocks.", i), 1e7, i == 7 ? 4e9 : 1e9));
  step.end = layer("end", 1e6, 1e8);
  step.calls.push_back({"aten::mm", 1, false, "Float", {{100, 10}, {10, 100}}, 2e5, 0});
  return step;
}

Question question(const std::string& cluster, std::int64_t batch) {
  Question q;
  q.model = model_of_recorded(uneven(), "net.json");
  q.cluster = parse_cluster(cluster);
  q.global_batch = batch;
  q.precision = Precision::fp32;
  return q;
}

TEST(PlanRecorded, FilesReadBack) {
  const std::string text = dump_json(recorded_value(uneven()));
  const RecordedStep again = read_recorded(parse_json(text, "net.json"));
  EXPECT_EQ(dump_json(recorded_value(again)), text);
  EXPECT_EQ(again.parameters(), 82e6);
  EXPECT_EQ(again.flop(), 3 * (11e9 + 1.01e8));
  EXPECT_EQ(again.saved_bytes(), 40e6);

  const std::string path = (std::filesystem::temp_directory_path() / concat("net", ::getpid(), ".json")).string();
  write_file_atomically(path, text);
  const Model model = find_model(path);
  std::filesystem::remove(path);
  EXPECT_EQ(parameter_count(model), 82e6);
  EXPECT_EQ(model.layers, 8);
  EXPECT_NEAR(model_flops_per_token(model, 64), 3 * 11.101e9 / 128, 1);
}

TEST(PlanRecorded, DamagedFilesAreRefusedWithTheirPlace) {
  const std::string text = dump_json(recorded_value(uneven()));
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string other = text;
    const std::size_t at = other.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    other.replace(at, from.size(), to);
    return error_of([&] { read_recorded(parse_json(other, "net.json")); });
  };
  EXPECT_NE(refused("\"tessera_recorded_step\": 1", "\"tessera_recorded_step\": 9").find("record it again"),
            std::string::npos);
  EXPECT_NE(refused("\"rows\": 2", "\"rows\": 0").find("net.json:4:"), std::string::npos);
  EXPECT_NE(refused("\"saved_bytes\": ", "\"saved_bytes\": -").find("saved_bytes is -4"), std::string::npos);
  EXPECT_NE(refused("\"moment_bytes\"", "\"moments\"").find("moment_bytes"), std::string::npos);
}

TEST(PlanRecorded, MemoryAndTimeAreSumsOfTheLayers) {
  Question q = question("1xH100", 4);
  Plan run;
  run.numerics = numerics_of(Precision::fp32, false);
  run.precision = Precision::fp32;
  run.sequence = 64;
  run.rows = 4;  // twice the recorded batch
  const Candidate one = evaluate(q, run);
  EXPECT_NEAR(one.memory[MemoryKind::parameters], 4 * 82e6, 1);
  EXPECT_NEAR(one.memory[MemoryKind::optimizer], 8 * 82e6, 1);
  EXPECT_NEAR(one.memory[MemoryKind::activations], 2 * 40e6, 1);
  EXPECT_NEAR(one.memory[MemoryKind::head], 2 * 1e6, 1);
  run.recompute = 1;
  const Candidate again = evaluate(q, run);
  // Inputs of eight layers, the activations of the begin and end parts, and one recomputed layer.
  EXPECT_NEAR(again.memory[MemoryKind::activations], 2 * (8 * 4e5 + 8e6) + 2 * (4e6 - 4e5), 1);
  EXPECT_GT(again.seconds, 1.1 * one.seconds);

  run.recompute = 0;
  run.mesh = layout::parse_mesh("dp_shard=4");
  run.strategy = Strategy::full_shard;
  q.cluster = parse_cluster("4xH100");
  const Candidate sharded = evaluate(q, run);
  EXPECT_NEAR(sharded.memory[MemoryKind::optimizer], 2 * 82e6, 1);
  EXPECT_NEAR(sharded.memory[MemoryKind::activations], 2 * 40e6, 1);
}

TEST(PlanRecorded, WhatIsFrozenHasNoGradients) {
  RecordedStep step = uneven();
  for (RecordedLayer& layer : step.layers) layer.trained = 0;
  Question q = question("1xH100", 2);
  q.model = model_of_recorded(step, "net.json");
  Plan run;
  run.numerics = numerics_of(Precision::fp32, false);
  run.precision = Precision::fp32;
  run.sequence = 64;
  run.rows = 2;
  const Candidate one = evaluate(q, run);
  EXPECT_NEAR(one.memory[MemoryKind::parameters], 4 * 82e6, 1);
  EXPECT_NEAR(one.memory[MemoryKind::gradients], 4 * 2e6, 1);
  EXPECT_NEAR(one.memory[MemoryKind::optimizer], 8 * 2e6, 1);
}

// Doubling the rows doubles the arithmetic but starts the same number of kernels.
TEST(PlanRecorded, RowsGrowTheSizesAndNotTheNumberOfCalls) {
  const RecordedStep step = uneven();
  Cluster cluster = parse_cluster("1xH100");
  cluster.device.launch = 1e-3;
  RecordedWork work;
  work.pass_bytes = 1e9;
  work.passes = 10;
  work.add(RecordedProduct{.m = 128 * 64, .n = 512, .k = 4096, .times = 2});            // rows in dimension m
  work.add(RecordedProduct{.m = 500, .n = 520, .k = 128 * 64, .times = 1});             // in dimension k: a gradient
  work.add(RecordedProduct{.m = 64, .n = 64, .k = 32, .batch = 64 * 100, .times = 4});  // in the batch dimension
  const RecordedSeconds once = recorded_seconds(step, work, cluster, 4, step.rows),
                        thrice = recorded_seconds(step, work, cluster, 4, 3 * step.rows);
  const double products = 7e-3, passes = 10e-3;  // launch overhead
  EXPECT_NEAR(thrice.passes - passes, 3 * (once.passes - passes), 1e-9);
  EXPECT_NEAR(thrice.products - products, 3 * (once.products - products), 0.1 * (once.products - products));
}

TEST(PlanRecorded, PipelinesAreCutByWhatLayersCost) {
  const Model model = model_of_recorded(uneven(), "net.json");
  Plan run;
  run.mesh = layout::parse_mesh("pp=2");
  cut_plan(model, run);
  ASSERT_EQ(run.parts.size(), 2u);
  EXPECT_EQ(run.parts[0].blocks, 6);  // 6 and 5 of 11 units of work
  const Elements elements = elements_of(model, 1, 1);
  EXPECT_NEAR(stage_elements(model, elements, run.parts[0]).all(), 61e6, 1);
  EXPECT_NEAR(stage_elements(model, elements, run.parts[1]).all(), 21e6, 1);
  run.numerics = numerics_of(Precision::fp32, false);
  run.sequence = 64;
  run.rows = 2;
  run.micro_batches = 4;
  const std::vector<Memory> ranks = memory_by_rank(model, run, 0);
  EXPECT_NEAR(ranks[0][MemoryKind::activations], 2 * (4e6 + 6 * 4e6), 1);  // two micro-batches in flight
  EXPECT_NEAR(ranks[1][MemoryKind::activations], 1 * (4e6 + 2 * 4e6), 1);
}

TEST(PlanRecorded, SearchGivesTheUsersProgramItsOptions) {
  Question q = question("8xH100", 64);
  const Answer answer = search(q);
  ASSERT_FALSE(answer.best.empty());
  for (const Candidate& c : answer.best) {
    EXPECT_EQ(c.plan.tp() * c.plan.cp() * c.plan.mesh.ep, 1);
    EXPECT_EQ(c.plan.rows * c.plan.micro_batches * c.plan.dp(), 64);
    const std::string lines = join(run_lines(q, c.plan), "\n");
    EXPECT_NE(lines.find("tessera launch --num_processes 8 YOUR_PROGRAM"), std::string::npos) << lines;
    if (c.plan.dp() > 1) {
      EXPECT_NE(lines.find(concat(".strategy = \"", word_of(c.plan.strategy), "\"")), std::string::npos) << lines;
    }
  }
  q.pp = 4;
  const Answer piped = search(q);
  ASSERT_FALSE(piped.best.empty());
  EXPECT_NE(join(run_lines(q, piped.best[0].plan), "\n").find("tessera::pipeline(net"), std::string::npos);
}

TEST(PlanRecorded, WhatTheRecordDoesNotSayIsRefused) {
  Question q = question("8xH100", 64);
  q.precision = Precision::bf16;
  EXPECT_NE(error_of([&] { search(q); }).find("recorded in fp32"), std::string::npos);
  q = question("8xH100", 64);
  q.sequence = 128;
  EXPECT_NE(error_of([&] { search(q); }).find("recorded with 64"), std::string::npos);
  Plan run;
  run.mesh = layout::parse_mesh("tp=2");
  EXPECT_NE(plan_problem(q.model, run).find("the nearest possible value is tp 1"), std::string::npos);
  run.mesh = layout::parse_mesh("pp=16");
  EXPECT_NE(plan_problem(q.model, run).find("pp may be at most 8"), std::string::npos);
}

}  // namespace
}  // namespace tessera::plan
