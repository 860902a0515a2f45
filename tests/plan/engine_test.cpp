// Engines: each feature that an engine gained in some year changes the step time, in the kind of time that it concerns.

#include <tessera/base/text.h>
#include <tessera/plan/presets.h>
#include <tessera/plan/search.h>
#include <tessera/plan/sure.h>

#include <gtest/gtest.h>
#include <tests/error_of.h>

#include <cmath>

namespace tessera::plan {
namespace {

using testing::error_of;

Plan plan_on(const Model& model, const std::string& mesh, const Engine& engine) {
  Plan plan;
  plan.engine = engine;
  plan.numerics = engine_numerics(engine);
  plan.mesh = layout::parse_mesh(mesh);
  plan.strategy = Strategy::zero1;
  plan.sequence = 2048;
  plan.micro_batches = 16;
  plan.sequence_parallel = plan.tp() > 1 && engine.sequence_parallel;
  cut_plan(model, plan);
  return plan;
}

StepTime step_of(const Model& model, const Plan& plan, const std::string& cluster) {
  return step_time(model, plan, elements_of(model, plan.tp(), 1), parse_cluster(cluster));
}

Model gpt(std::int64_t heads = 64) {
  return model_of_numbers(
      {.layers = 16, .hidden = 8192, .heads = heads, .vocabulary = 51200, .positions = 2048, .gpt2 = true});
}

TEST(PlanEngine, YearsBringKernelsAndOverlap) {
  const auto attention = [](EngineName name, int year) { return engine_of(name, year).attention; };
  EXPECT_EQ(attention(EngineName::megatron, 2021), AttentionKernel::scores_in_memory);
  EXPECT_EQ(attention(EngineName::megatron, 2023), AttentionKernel::flash1);
  EXPECT_EQ(attention(EngineName::fsdp2, 2024), AttentionKernel::flash2);
  EXPECT_EQ(attention(EngineName::torchtitan, 0), AttentionKernel::newest);
  EXPECT_EQ(attention(EngineName::tessera, 0), AttentionKernel::newest);
  EXPECT_FALSE(engine_of(EngineName::megatron, 2021).sequence_parallel);
  EXPECT_TRUE(engine_of(EngineName::megatron, 2022).sequence_parallel);
  EXPECT_LT(engine_of(EngineName::megatron, 2023).tensor_hidden, engine_of(EngineName::megatron, 2024).tensor_hidden);
  EXPECT_LT(engine_of(EngineName::torchtitan, 2024).tensor_hidden,
            engine_of(EngineName::torchtitan, 2025).tensor_hidden);
  EXPECT_EQ(text_of(engine_of(EngineName::deepspeed, 2022)), "deepspeed of 2022");
  EXPECT_EQ(text_of(engine_of(EngineName::megatron)), "megatron");
}

// The same run in later years is never slower than before.
TEST(PlanEngine, ProgramsDoNotGetSlower) {
  const Model model = gpt();
  for (const EngineName name : {EngineName::megatron, EngineName::deepspeed, EngineName::torchtitan})
    for (const char* cluster : {"64xA100", "64xH100"}) {
      double before = 1e300;
      for (const int year : {2020, 2021, 2022, 2023, 2024, 2025, 0}) {
        const double seconds =
            step_of(model, plan_on(model, "pp=2,dp_shard=4,tp=8", engine_of(name, year)), cluster).total();
        EXPECT_LE(seconds, before * (1 + 1e-12)) << word_of(name) << " " << year << " " << cluster;
        before = seconds;
      }
    }
}

TEST(PlanEngine, SharesOfAttention) {
  const Device a100 = parse_cluster("A100").device, h100 = parse_cluster("H100").device;
  EXPECT_EQ(attention_share(h100, AttentionKernel::newest), h100.attention);
  EXPECT_LT(attention_share(a100, AttentionKernel::flash1), attention_share(a100, AttentionKernel::flash2));
  // FlashAttention-2 reaches about 35 % of an H100's peak (Shah et al. 2024).
  EXPECT_NEAR(attention_share(h100, AttentionKernel::flash2), 0.33, 0.03);
  EXPECT_LT(attention_share(h100, AttentionKernel::flash1), attention_share(a100, AttentionKernel::flash1));
}

// Heads of 108 columns give rows that are not multiples of 16 bytes, so score products run without tensor cores.
TEST(PlanEngine, ScoresOfUnevenHeadsAreSlow) {
  const Device d = parse_cluster("A100").device;
  const double even = scores_seconds(d, 4096, 2048, 13824, 216, 2),
               uneven = scores_seconds(d, 4096, 2048, 13824, 108, 2);
  EXPECT_GT(uneven, 4 * even);
  // 4 x queries x keys x width FLOP at half the fp32 rate, and 9 bytes per score through memory.
  const double scores = 4096.0 * 2048 * 128;
  EXPECT_NEAR(uneven, 4.0 * 4096 * 2048 * 13824 / (d.fp32 / 2) + 9 * scores / (d.bandwidth * d.passes) + 3 * d.launch,
              1e-9);
  EXPECT_LT(scores_seconds(d, 4096, 2048, 12288, 96, 2), 4 * scores_seconds(d, 4096, 2048, 12288, 192, 2));
}

// A partial wave of tiles takes as long as a full one: 112 tiles of 256 x 128 on 108 units take as long as nearly 216.
TEST(PlanEngine, WavesAreWhole) {
  Device d = parse_cluster("A100").device;
  d.launch = 0;
  const double full = product_seconds(d, 256 * 27, 128 * 4, 8192, 2);
  EXPECT_GT(product_seconds(d, 256 * 28, 128 * 4, 8192, 2), 1.4 * full);
  EXPECT_NEAR(product_seconds(d, 2 * 256 * 27, 128 * 4, 8192, 2), 2 * full, 1e-9 * full);
  const double large = product_seconds(d, 64 * 256 * 108, 1280, 8192, 2);
  EXPECT_NEAR(product_seconds(d, 64 * 256 * 108 + 256, 1280, 8192, 2), large, 0.01 * large);
}

TEST(PlanEngine, EachTraitActsOnItsKind) {
  const Model model = gpt();
  const auto with = [&](auto change, const std::string& mesh = "pp=2,dp_shard=4,tp=8") {
    Engine engine = engine_of(EngineName::megatron);
    change(engine);
    return step_of(model, plan_on(model, mesh, engine), "64xA100");
  };
  const StepTime plain = with([](Engine&) {});
  const StepTime host = with([](Engine& e) { e.pipeline_host_seconds = 0.001; });
  // A rank has half of the blocks; its backward takes twice as long as its forward.
  EXPECT_NEAR(host[TimeKind::host], 0.001 * 3 * 16 / 2 * 16, 1e-9);
  EXPECT_EQ(plain[TimeKind::host], 0);
  const StepTime exposed = with([](Engine& e) { e.tensor_hidden = 0; });
  EXPECT_NEAR(plain[TimeKind::tensor], 0.3 * exposed[TimeKind::tensor], 1e-9);
  const StepTime wide = with([](Engine& e) { e.pass_bytes *= 2; });
  EXPECT_GT(wide[TimeKind::passes], 1.4 * plain[TimeKind::passes]);
  const StepTime loss = with([](Engine& e) { e.loss_bytes = 46; });
  EXPECT_GT(loss[TimeKind::passes], plain[TimeKind::passes]);
  const StepTime waits = with([](Engine& e) { e.waits_for_messages = true; });
  EXPECT_GT(waits[TimeKind::bubble], plain[TimeKind::bubble]);
  const StepTime slow = with([](Engine& e) { e.slow_nodes = 0.005; });
  const double rest = slow.total() - slow[TimeKind::jitter];
  EXPECT_NEAR(slow[TimeKind::jitter] - plain[TimeKind::jitter], 0.1 * (1 - std::pow(0.995, 8)) * rest, 1e-9);
  const StepTime unhidden = with([](Engine& e) { e.data_hidden = 0; });
  EXPECT_GT(unhidden[TimeKind::data], plain[TimeKind::data]);
  EXPECT_GT(plain[TimeKind::data], 0.2 * unhidden[TimeKind::data]);  // hidden communication is not free
}

// Without sequence parallelism a message is sent whole unless the engine scatters it.
TEST(PlanEngine, MessagesAreScattered) {
  const Model model = gpt();
  Engine engine = engine_of(EngineName::deepspeed);
  const double divided = step_of(model, plan_on(model, "pp=8,dp_shard=1,tp=8", engine), "64xA100")[TimeKind::bubble];
  engine.scattered_messages = false;
  const double whole = step_of(model, plan_on(model, "pp=8,dp_shard=1,tp=8", engine), "64xA100")[TimeKind::bubble];
  EXPECT_GT(whole, 1.05 * divided);
}

// Hidden communication slows the computation over it by a quarter of its own time; on the CPU this is measured, not
// modelled.
TEST(PlanEngine, OverlapCosts) {
  const Model model = gpt();
  const Plan plan = plan_on(model, "dp_shard=64", engine_of(EngineName::megatron));
  const Elements::Piece piece = elements_of(model, 1, 1).block[0];
  const auto exposed = [&](const char* cluster, double seconds) {
    return exposed_data_seconds(plan, piece, 0, parse_cluster(cluster), seconds, seconds);
  };
  EXPECT_GT(exposed("64xA100", 0), 0);
  EXPECT_NEAR(exposed("64xA100", 1e6), 0.25 * exposed("64xA100", 0), 1e-12);
  EXPECT_EQ(exposed("64xCPU/2", 1e6), 0);
}

TEST(PlanEngine, NumbersOfMixedPrecision) {
  EXPECT_EQ(engine_numerics(engine_of(EngineName::megatron, 2023)).wire, 4);
  EXPECT_EQ(engine_numerics(engine_of(EngineName::megatron, 2024)).wire, 2);
  EXPECT_EQ(engine_numerics(engine_of(EngineName::megatron)).states, 12);
  const Numerics fsdp = engine_numerics(engine_of(EngineName::fsdp2));
  EXPECT_EQ(fsdp.shard, 4);
  EXPECT_EQ(fsdp.whole, 2);
  EXPECT_EQ(fsdp.wire, 2);
  EXPECT_EQ(fsdp.states, 8);
  EXPECT_EQ(engine_numerics(engine_of(EngineName::torchtitan)).wire, 4);
  EXPECT_EQ(engine_numerics({}).residual, numerics_of(Precision::bf16, false).residual);
}

TEST(PlanEngine, AgainstOurs) {
  Question q;
  q.model = find_model("llama-2-7b");
  q.cluster = parse_cluster("64xA100");
  q.global_batch = 512;
  q.sequence = 4096;
  q.engine = engine_of(EngineName::megatron, 2021);
  const Candidate theirs = search(q).best.at(0);
  Question ours = q;
  ours.engine = {};
  Plan plan = theirs.plan;
  plan.engine = {};
  plan.numerics = numerics_of(Precision::bf16, false);
  plan.sequence_parallel = plan.tp() > 1;
  const double seconds = evaluate(ours, plan).seconds;
  EXPECT_LT(seconds, 0.95 * theirs.seconds);
  const std::string text = against_ours(q, theirs);
  EXPECT_NE(text.find("tessera: " + format_real(seconds, 3) + " s per step; megatron of 2021 is "), std::string::npos)
      << text;
  EXPECT_NE(text.find(" % slower ("), std::string::npos) << text;
}

// Grouped products of experts are slower than single products of the same size: two experts with half the rows each
// against one with all rows.
TEST(PlanEngine, GroupedProductsAreSlower) {
  const auto products = [](std::int64_t experts) {
    const Model model = model_of_numbers({.layers = 4,
                                          .hidden = 4096,
                                          .heads = 32,
                                          .vocabulary = 32000,
                                          .positions = 4096,
                                          .experts = experts,
                                          .top_k = 1,
                                          .expert_inner = 65536});
    Plan plan = plan_on(model, "dp_shard=1", {});
    plan.rows = 16;
    return block_time(model, plan, parse_cluster("1xA100"), true, 2048).forward[TimeKind::products];
  };
  EXPECT_NEAR(products(2) / products(1), 1 / 0.66, 0.12);
}

TEST(PlanEngine, ScoresAgain) {
  const Model model = gpt();
  Plan plan = plan_on(model, "dp_shard=8,tp=8", engine_of(EngineName::megatron, 2022));
  const double once = step_of(model, plan, "64xA100")[TimeKind::attention];
  plan.scores_again = true;
  EXPECT_NEAR(step_of(model, plan, "64xA100")[TimeKind::attention], once * 4 / 3, 1e-9);  // backward: twice forward
}

TEST(PlanEngine, SearchedWhatTheEngineHas) {
  Question q;
  q.model = find_model("llama-2-7b");
  q.cluster = parse_cluster("64xH100");
  q.global_batch = 256;
  q.sequence = 4096;
  for (const EngineName name :
       {EngineName::megatron, EngineName::deepspeed, EngineName::torchtitan, EngineName::fsdp2}) {
    q.engine = engine_of(name);
    const Answer answer = search(q);
    ASSERT_FALSE(answer.best.empty()) << word_of(name);
    for (const Candidate& c : answer.best) {
      EXPECT_TRUE(has_schedule(name, c.plan.schedule)) << c.plan.schedule;
      EXPECT_TRUE(has_strategy(name, c.plan.strategy, c.plan.pp()) || c.plan.dp() == 1) << word_of(c.plan.strategy);
      if (name == EngineName::fsdp2) EXPECT_EQ(c.plan.dp(), 64);
    }
    EXPECT_NE(against_ours(q, answer.best[0]).find("the same plan in tessera: "), std::string::npos);
  }
  q.engine = engine_of(EngineName::fsdp2);
  q.tp = 2;
  EXPECT_NE(error_of([&] { search(q); }).find("the nearest possible value is tp 1"), std::string::npos);
  q.tp = 0;
  q.engine = engine_of(EngineName::megatron);
  q.schedule = "zbv";
  EXPECT_NE(error_of([&] { search(q); }).find("engine megatron has no such schedule"), std::string::npos);
  q.schedule.reset();
  q.strategy = Strategy::zero2;
  EXPECT_NE(error_of([&] { search(q); }).find("strategy zero2"), std::string::npos);
  q.strategy.reset();
  q.cluster = parse_cluster("2xCPU");
  EXPECT_NE(error_of([&] { search(q); }).find("predictions are only for GPUs"), std::string::npos);
}

Candidate candidate(double seconds, double bytes, const std::string& mesh) {
  Candidate c;
  c.seconds = seconds;
  c.memory[MemoryKind::parameters] = bytes;
  c.plan.mesh = layout::parse_mesh(mesh);
  c.plan.micro_batches = 8;
  return c;
}

TEST(PlanSure, FewerMessagesThenMoreMemoryDecide) {
  const Model model = gpt();
  std::vector<Candidate> best = {candidate(1, 4e9, "dp_replicate=8,tp=8"), candidate(1.02, 6e9, "dp_replicate=64"),
                                 candidate(1.03, 5e9, "dp_replicate=64"), candidate(1.2, 1e9, "dp_replicate=64")};
  std::vector<Candidate> again = best;
  const Tie tie = break_tie(model, best, 0.04);
  EXPECT_EQ(tie.equal, 3u);
  EXPECT_EQ(best[0].seconds, 1.03);  // as few messages as the second, but less memory
  EXPECT_EQ(best[1].seconds, 1);
  EXPECT_EQ(best[2].seconds, 1.02);
  EXPECT_EQ(best[3].seconds, 1.2);
  EXPECT_NE(tie.reason.find("it needs 5.0 GB, the next one 6.0 GB"), std::string::npos) << tie.reason;
  again.erase(again.begin() + 2);
  EXPECT_NE(break_tie(model, again, 0.04).reason.find("fewer messages"), std::string::npos);
  EXPECT_EQ(again[0].seconds, 1.02);
  again = {candidate(1, 4e9, "dp_replicate=8,tp=8"), candidate(1.05, 6e9, "dp_replicate=64")};
  EXPECT_EQ(break_tie(model, again, 0.04).equal, 1u);
  EXPECT_EQ(again[0].seconds, 1);
  again.clear();
  EXPECT_EQ(break_tie(model, again, 0.04).reason, "");
}

TEST(PlanSure, MessagesOfAStep) {
  const Model model = gpt();  // 16 blocks
  const auto messages = [&](const std::string& mesh, auto change) {
    Plan plan;
    plan.mesh = layout::parse_mesh(mesh);
    plan.micro_batches = 8;
    change(plan);
    return messages_of_step(model, plan);
  };
  const auto plain = [](Plan&) {};
  EXPECT_EQ(messages("dp_replicate=1", plain), 0);
  EXPECT_EQ(messages("dp_replicate=8", plain), 16);
  EXPECT_EQ(messages("tp=8", plain), 8 * 16 * 4);
  EXPECT_EQ(messages("tp=8", [](Plan& p) { p.recompute = 1; }), 8 * 16 * 6);
  EXPECT_EQ(messages("tp=8", [](Plan& p) { p.sequence_parallel = true; }), 8 * 16 * 8);
  EXPECT_EQ(messages("pp=4", plain), 8 * 4);
  EXPECT_EQ(messages("dp_shard=8", [](Plan& p) { p.strategy = Strategy::full_shard; }), 16 * 8 * 3);
  EXPECT_EQ(messages("cp=4", plain), 8 * 16 * 2 * 3 + 16);
}

TEST(PlanSure, KnownBySource) {
  const Cluster h100 = parse_cluster("8xH100");
  EXPECT_EQ(sureness(h100).median, 0.04);
  EXPECT_NE(sureness(h100).source.find("none of tessera"), std::string::npos);
  EXPECT_EQ(sureness(h100, engine_of(EngineName::megatron)).source, "published runs on such devices");
  EXPECT_EQ(sureness(parse_cluster("8xMI300X")).median, 0.1);
  Cluster measured = parse_cluster("2xCPU");
  measured.device.measured = std::make_shared<Speeds>();
  EXPECT_LT(sureness(measured).median, 0.03);
}

}  // namespace
}  // namespace tessera::plan
