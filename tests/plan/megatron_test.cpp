// Memory and step time of Megatron-LM runs as measured by others: every run of the table, every pipeline rank.

#include <tessera/base/error.h>
#include <tessera/plan/megatron.h>
#include <tessera/plan/presets.h>
#include <tessera/plan/time.h>

#include <gtest/gtest.h>
#include <tests/paths.h>
#include <tests/plan/calculon_like.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace tessera::plan {
namespace {

constexpr double mib = 1 << 20;

Plan plan_of(const Value& run, const Model& model) {
  const auto size = [&](const char* key) { return run.at(key).as_int(); };
  const std::int64_t tp = size("tp"), pp = size("pp"), cp = size("cp"), dp = 8 / (tp * pp * cp);
  Plan plan;
  plan.strategy = Strategy::zero1;
  plan.mesh =
      layout::parse_mesh(concat("pp=", pp, ",dp_shard=", dp, ",cp=", cp, ",tp=", tp, ",ep=", size("ep"), ",etp=1"));
  plan.numerics = megatron_numerics();
  plan.sequence = size("sequence");
  plan.engine.data_hidden = 0;
  plan.micro_batches = 4;
  plan.sequence_parallel = tp > 1;
  cut_plan(model, plan);
  return plan;
}

struct Error {
  double sum = 0, worst = 0, count = 0;
  void add(double error) {
    sum += std::abs(error);
    worst = std::max(worst, std::abs(error));
    ++count;
  }
  double mean() const { return sum / count; }
};

TEST(Megatron, MemoryIsWhatOthersMeasured) {
  const Value file = read_json(testing::source_path("tests/fixtures/planning/megatron.json"));
  Error fullest, all;
  for (const Value& run : file.at("runs").items()) {
    const Model model = read_model(run.at("config"));
    const Plan plan = plan_of(run, model);
    const std::vector<Memory> memory = megatron_memory(model, plan, {.fused_loss = true});
    const auto& measured = run.at("allocated_mib").items();
    ASSERT_EQ(memory.size(), measured.size());
    double most = 0, most_measured = 0;
    for (std::size_t rank = 0; rank < memory.size(); ++rank) {
      const Memory& m = memory[rank];
      const double predicted = m.total() / mib, published = measured[rank].as_real();
      all.add(predicted / published - 1);
      most = std::max(most, predicted);
      most_measured = std::max(most_measured, published);
      std::printf("  %-24s %-34s rank %zu %9.0f MiB published %9.0f predicted %+5.2f %%  (",
                  run.at("name").as_string().c_str(), text_of(plan).c_str(), rank, published, predicted,
                  100 * (predicted / published - 1));
      for (std::size_t i = 0; i < memory_kinds; ++i)
        if (m.bytes[i] > 0)
          std::printf(" %s %.0f", std::string(name_of(static_cast<MemoryKind>(i))).substr(0, 4).c_str(),
                      m.bytes[i] / mib);
      std::printf(")\n");
    }
    fullest.add(most / most_measured - 1);
  }
  std::printf("  fullest rank of %.0f runs: mean %.2f %%, worst %.2f %%; %.0f stages: mean %.2f %%, worst %.2f %%\n",
              fullest.count, 100 * fullest.mean(), 100 * fullest.worst, all.count, 100 * all.mean(), 100 * all.worst);
  EXPECT_LT(fullest.mean(), 0.02);
  EXPECT_LT(fullest.worst, 0.04);
  EXPECT_LT(all.worst, 0.04);
}

TEST(Megatron, TimesAreNearWhatOthersMeasured) {
  const Value file = read_json(testing::source_path("tests/fixtures/planning/megatron.json"));
  std::vector<double> errors;
  double calculon = 0;
  for (const Value& run : file.at("runs").items()) {
    const Model model = read_model(run.at("config"));
    Plan plan = plan_of(run, model);
    for (const Value& pair : run.at("seconds").items()) {
      plan.micro_batches = pair.items()[0].as_int();
      const double seconds = pair.items()[1].as_real();
      const StepTime time =
          step_time(model, plan, elements_of(model, plan.tp(), plan.mesh.ep), parse_cluster("8xB200"));
      errors.push_back(time.total() / seconds - 1);
      const double theirs = CalculonLike(model, plan, parse_cluster("8xB200"), true).seconds() / seconds - 1;
      calculon += std::abs(theirs);
      std::printf("  %-24s %-40s %7.3f s published %7.3f predicted %+6.1f %% (Calculon %+6.1f %%)",
                  run.at("name").as_string().c_str(), text_of(plan).c_str(), seconds, time.total(), 100 * errors.back(),
                  100 * theirs);
      for (std::size_t i = 0; i < time_kinds; ++i)
        std::printf(" %s %.0f", std::string(name_of(static_cast<TimeKind>(i))).substr(0, 4).c_str(),
                    100 * time.seconds[i] / time.total());
      std::printf("\n");
    }
  }
  double bias = 0;
  for (const double e : errors) bias += e / static_cast<double>(errors.size());
  for (double& e : errors) e = std::abs(e);
  std::sort(errors.begin(), errors.end());
  const double median = errors[errors.size() / 2];
  std::printf("  %zu steps: median %.1f %%, worst %.1f %%, bias %+.1f %%; Calculon's shares: mean %.1f %%\n",
              errors.size(), 100 * median, 100 * errors.back(), 100 * bias,
              100 * calculon / static_cast<double>(errors.size()));
  EXPECT_LT(median, 0.05);
}

Plan small_plan(const Model& model, const std::string& mesh) {
  Plan plan;
  plan.strategy = Strategy::zero1;
  plan.mesh = layout::parse_mesh(mesh);
  plan.micro_batches = 8;
  cut_plan(model, plan);
  return plan;
}

double of_kind(const Memory& memory, MemoryKind kind) { return memory.bytes[static_cast<std::size_t>(kind)]; }

TEST(Megatron, SettingsDoWhatTheyAreFor) {
  const Model model = find_model("llama-3-8b");
  Plan plan = small_plan(model, "pp=2,dp_shard=4,tp=2");
  const auto first = [&](const MegatronOptions& options = {}) { return megatron_memory(model, plan, options)[0]; };
  const auto last = [&](const MegatronOptions& options = {}) { return megatron_memory(model, plan, options)[1]; };
  const double kept = of_kind(first(), MemoryKind::activations);
  // Two micro-batches are in flight on the first of two ranks, one on the last.
  EXPECT_NEAR(kept / of_kind(last({.fused_loss = true}), MemoryKind::activations), 2, 0.05);
  // Without the fused loss the softmax keeps four more bytes per word.
  const double words = std::ceil(128256 / 256.0) * 128;
  EXPECT_NEAR(last().total() - last({.fused_loss = true}).total(), 4 * 1024 * words, 1);
  EXPECT_EQ(first().total(), first({.fused_loss = true}).total());
  plan.sequence_parallel = true;
  const double parts = of_kind(first(), MemoryKind::activations);
  EXPECT_LT(parts, kept);
  plan.recompute = 1;
  // Only a block's input is kept: 2 h bytes per token and half a row, for 16 blocks and two micro-batches.
  EXPECT_NEAR(of_kind(first(), MemoryKind::activations), 2 * 16 * 2.0 * 4096 * 512, 1);
  EXPECT_GT(of_kind(first(), MemoryKind::head), 0.9 * parts / 32);  // one block is recomputed
  plan.recompute = 0;
  const double divided = of_kind(first(), MemoryKind::optimizer);
  plan.strategy = Strategy::ddp;
  EXPECT_NEAR(of_kind(first(), MemoryKind::optimizer), 4 * divided, 1);
}

TEST(Megatron, OneDummyGradientStandsForAllWeightsOfAShape) {
  const Model model = find_model("llama-2-7b");
  const Plan plan = small_plan(model, "dp_shard=8");
  const double h = 4096, f = 11008, words = 32000;
  EXPECT_EQ(of_kind(megatron_memory(model, plan)[0], MemoryKind::buffers),
            2 * (3 * h * h + h * h + 2 * f * h + f * h + words * h));
}

TEST(Megatron, WhatItHasNotIsRefused) {
  const auto refused = [](const Model& model, const Plan& plan, const std::string& why) {
    try {
      megatron_memory(model, plan);
      FAIL() << why;
    } catch (const InputError& e) {
      EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
    }
  };
  const Model llama = find_model("llama-2-7b"), bert = find_model("bert-base");
  Plan plan = small_plan(llama, "dp_shard=8");
  plan.strategy = Strategy::full_shard;
  refused(llama, plan, "strategy full_shard is not supported; use zero1 (its distributed optimizer)");
  plan.strategy = Strategy::zero1;
  plan.offload = Offload::optimizer;
  refused(llama, plan, "offloading");
  refused(bert, small_plan(bert, "dp_shard=8"), "a model of type \"bert\" is not supported");
}

}  // namespace
}  // namespace tessera::plan
