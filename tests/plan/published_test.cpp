// Step times of published runs, printed next to two baselines: one constant per device (the median TFLOP/s of the other
// runs) and Calculon's shares of the peak (calculon_like.h). A planner must beat both. The assertions use only runs
// that were not used to fit any constant.

#include <tessera/plan/presets.h>
#include <tessera/plan/time.h>

#include <gtest/gtest.h>
#include <tests/paths.h>
#include <tests/plan/calculon_like.h>
#include <tests/plan/published_runs.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

namespace tessera::plan {
namespace {

struct Published {
  std::string name, gpu;
  double seconds = 0, predicted = 0, calculon = 0;
  double flops = 0;  ///< FLOP of the model, per device and step
  double memory = 0;
  bool fitted = false;
};

std::int64_t number(const Value& row, const char* key, std::int64_t otherwise) {
  const Value* v = row.find(key);
  return v ? v->as_int() : otherwise;
}

Published predict(const Value& row) {
  Model model;
  if (const Value* sizes = row.find("gpt"))
    model = model_of_numbers({.layers = sizes->at("layers").as_int(),
                              .hidden = sizes->at("hidden").as_int(),
                              .heads = sizes->at("heads").as_int(),
                              .vocabulary = sizes->at("vocabulary").as_int(),
                              .positions = 2048,
                              .gpt2 = true});
  else
    model = find_model(row.at("model").as_string());
  const std::int64_t gpus = row.at("gpus").as_int(), tp = number(row, "tp", 1), pp = number(row, "pp", 1),
                     cp = number(row, "cp", 1), dp = gpus / (tp * pp * cp);
  const Cluster cluster = parse_cluster(concat(gpus, "x", row.at("gpu").as_string()));
  Plan plan;
  const Value* strategy = row.find("strategy");
  plan.strategy = strategy ? *parse_word<Strategy>(strategy->as_string()) : Strategy::ddp;
  const bool shards = row_of(plan.strategy).shard_optimizer;
  plan.mesh =
      layout::parse_mesh(concat("pp=", pp, shards ? ",dp_shard=" : ",dp_replicate=", dp, ",cp=", cp, ",tp=", tp));
  plan.engine =
      engine_of(*parse_word<EngineName>(row.at("engine").as_string()), static_cast<int>(row.at("year").as_int()));
  plan.numerics = engine_numerics(plan.engine);
  plan.sequence = row.at("sequence").as_int();
  plan.rows = row.at("rows").as_int();
  plan.micro_batches = row.at("batch").as_int() / (dp * plan.rows);
  plan.recompute = row.at("recompute").as_int();
  plan.scores_again = row.find("scores_again") != nullptr;
  plan.stages_per_rank = number(row, "v", 1);
  plan.schedule = plan.stages_per_rank > 1 ? "interleaved_1f1b" : "1f1b";
  const Value* sp = row.find("sp");
  plan.sequence_parallel = sp ? sp->as_bool() : tp > 1 && plan.engine.sequence_parallel;
  const double ends = static_cast<double>(number(row, "ends", 0));
  cut_plan(model, plan, ends, ends);
  Published p;
  p.name = row.at("name").as_string();
  p.gpu = cluster.device.name;
  p.fitted = row.find("fitted") != nullptr;
  const StepTime time = step_time(model, plan, elements_of(model, static_cast<int>(tp), 1), cluster);
  p.predicted = time.total();
  p.calculon = CalculonLike(model, plan, cluster, plan.engine.attention != AttentionKernel::scores_in_memory).seconds();
  p.memory = largest(memory_by_rank(model, plan, cluster.device.process)).first.total();
  const double tokens = plan.tokens_per_step(), devices = static_cast<double>(gpus);
  p.flops = model_flops_per_token(model, static_cast<double>(plan.sequence)) * tokens / devices;
  if (const Value* v = row.find("seconds")) p.seconds = v->as_real();
  if (const Value* v = row.find("tokens_per_second")) p.seconds = tokens / devices / v->as_real();
  if (const Value* v = row.find("model_tflops")) p.seconds = p.flops / (v->as_real() * 1e12);
  if (const Value* v = row.find("hardware_tflops")) {
    const double l = static_cast<double>(model.layers), h = static_cast<double>(model.hidden), s = 2048,
                 words = static_cast<double>(model.vocabulary);
    const double flops = 96 * (tokens / s) * s * l * h * h * (1 + s / (6 * h) + words / (16 * l * h));
    p.seconds = flops / devices / (v->as_real() * 1e12);
  }
  std::printf("  %-16s %-6s %6lld  %8.2f s published %8.2f s predicted  %+6.1f %% (Calculon %+6.1f %%)  %5.1f GB ",
              p.name.c_str(), p.gpu.c_str(), static_cast<long long>(gpus), p.seconds, p.predicted,
              100 * (p.predicted / p.seconds - 1), 100 * (p.calculon / p.seconds - 1), p.memory / 1e9);
  for (std::size_t i = 0; i < time_kinds; ++i)
    std::printf(" %s %.0f", std::string(name_of(static_cast<TimeKind>(i))).substr(0, 4).c_str(),
                100 * time.seconds[i] / p.predicted);
  std::printf("\n");
  return p;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

TEST(Published, StepTimesAreNearWhatOthersMeasured) {
  const Value file = read_json(testing::source_path("tests/fixtures/planning/published.json"));
  std::vector<Published> runs;
  for (const Value& row : file.at("runs").items()) runs.push_back(predict(row));
  std::vector<double> errors, constant, calculon, fitted;
  double bias = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Published& run = runs[i];
    const double error = std::abs(run.predicted / run.seconds - 1);
    if (run.fitted) {
      fitted.push_back(error);
      continue;
    }
    errors.push_back(error);
    calculon.push_back(std::abs(run.calculon / run.seconds - 1));
    bias += std::log(run.predicted / run.seconds);
    std::vector<double> others;  // FLOP/s of the other runs on this device
    for (std::size_t j = 0; j < runs.size(); ++j)
      if (j != i && runs[j].gpu == run.gpu) others.push_back(runs[j].flops / runs[j].seconds);
    if (!others.empty()) constant.push_back(std::abs(run.flops / median(others) / run.seconds - 1));
  }
  std::printf(
      "  %zu runs that no constant was chosen by: median %.1f %%, worst %.1f %%, bias %+.1f %%; one constant per "
      "device: median %.1f %%, worst %.1f %%; Calculon's shares: median %.1f %%, worst %.1f %%\n  %zu runs that some "
      "were: median %.1f %%\n",
      errors.size(), 100 * median(errors), 100 * *std::max_element(errors.begin(), errors.end()),
      100 * std::expm1(bias / static_cast<double>(errors.size())), 100 * median(constant),
      100 * *std::max_element(constant.begin(), constant.end()), 100 * median(calculon),
      100 * *std::max_element(calculon.begin(), calculon.end()), fitted.size(), 100 * median(fitted));
  EXPECT_LT(median(errors), 0.06);
  EXPECT_LT(median(errors), median(constant));
  EXPECT_LT(median(errors), median(calculon));
}

// Samples every kind of source in the table for bench/plan_published.py.
TEST(Published, RowsOfTheTable) {
  std::vector<double> errors;
  double bias = 0;
  for (const testing::PublishedRun& run : testing::read_published(testing::source_path("tests/plan/published.csv"))) {
    ASSERT_EQ(testing::left_out(run), "") << run.line;
    const testing::PublishedPrediction p = testing::predict(run);
    const double log = std::log(p.time.total() / p.published);
    errors.push_back(std::abs(std::expm1(log)));
    bias += log;
    std::printf("  %-18s %-8s %5lld  %8.2f s published %8.2f s predicted %+6.1f %%  (%s)\n", run.model.c_str(),
                p.cluster.device.name.c_str(), static_cast<long long>(run.gpus), p.published, p.time.total(),
                100 * std::expm1(log), text_of(p.plan.engine).c_str());
  }
  std::sort(errors.begin(), errors.end());
  bias /= static_cast<double>(errors.size());
  std::printf("  %zu rows: median %.1f %%, worst %.1f %%, bias %+.1f %%\n", errors.size(), 100 * median(errors),
              100 * errors.back(), 100 * std::expm1(bias));
  EXPECT_LT(median(errors), 0.05);
  EXPECT_LT(errors.back(), 0.20);
  EXPECT_LT(std::abs(bias), 0.03);
}

TEST(Published, WhatIsLeftOutIsNamed) {
  const auto rows = testing::read_published(testing::source_path("tests/plan/published.csv"));
  testing::PublishedRun run = rows[0];
  const auto reason = [&](auto change) {
    testing::PublishedRun changed = run;
    change(changed);
    return testing::left_out(changed);
  };
  using Run = testing::PublishedRun;
  EXPECT_EQ(reason([](Run& r) { r.precision = "mxfp8"; }), "fp8 or fp4");
  EXPECT_EQ(reason([](Run& r) { r.ep = 8; }), "mixture");
  EXPECT_EQ(reason([](Run& r) { r.batch = 0; }), "no batch");
  EXPECT_EQ(reason([](Run& r) { r.gpu = "TPUv4"; }), "device not known");
  EXPECT_EQ(reason([](Run& r) { r.dp *= 2; }), "its axes are not its devices");
  EXPECT_EQ(reason([](Run& r) { r.batch += 1; }), "batch does not divide");
  EXPECT_EQ(reason([](Run& r) { r.layers = 0; }), "no sizes of the model");
}

}  // namespace
}  // namespace tessera::plan
