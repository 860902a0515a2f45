// The search: its plans fit and can run, more devices are never slower, threads do not change the result; its speed.

#include <tessera/plan/from_config.h>
#include <tessera/plan/presets.h>
#include <tessera/plan/search.h>

#include <gtest/gtest.h>
#include <tessera/config/resolve/resolve.h>
#include <tests/error_of.h>

namespace tessera::plan {
namespace {

using testing::error_of;

Question question(const std::string& model, const std::string& cluster, std::int64_t batch, std::int64_t sequence) {
  Question q;
  q.model = find_model(model);
  q.cluster = parse_cluster(cluster);
  q.global_batch = batch;
  q.sequence = sequence;
  return q;
}

TEST(PlanSearch, WhatIsFoundFitsAndCanBe) {
  for (const auto& q : {question("llama-3-8b", "8xH100", 64, 8192), question("llama-2-70b", "64xA100", 256, 4096),
                        question("mixtral-8x7b", "32xH100", 256, 4096), question("gpt2", "1xRTX4090", 8, 1024)}) {
    const Answer answer = search(q);
    ASSERT_FALSE(answer.best.empty()) << q.model.name;
    double before = 0, fastest = 1e300;
    for (const Candidate& c : answer.best) fastest = std::min(fastest, c.seconds);
    EXPECT_LE(answer.best[0].seconds, fastest * 1.04);  // among equal plans the one with fewer messages wins (sure.h)
    for (const Candidate& c : answer.best) {
      EXPECT_EQ(c.plan.mesh.world_size(), q.cluster.devices);
      EXPECT_EQ(c.plan.rows * c.plan.micro_batches * c.plan.dp(), q.global_batch);
      EXPECT_EQ(plan_problem(q.model, c.plan), "") << text_of(c.plan);
      EXPECT_LE(c.memory.total(), 0.94 * q.cluster.device.memory);
      if (&c != &answer.best[0]) EXPECT_GE(c.seconds, before);
      EXPECT_GT(c.utilization, 0.02);
      EXPECT_LT(c.utilization, 0.75);
      if (&c != &answer.best[0]) before = c.seconds;
    }
  }
}

// The printed commands resolve to the plans next to them.
TEST(PlanSearch, CommandsReadBackAsThePlan) {
  for (const auto& q :
       {question("llama-2-70b", "64xA100", 256, 4096), question("mixtral-8x7b", "32xH100", 256, 4096)}) {
    for (const Candidate& c : search(q).best) {
      std::vector<std::string> words = {"--config_name", q.model.name};
      for (const std::string& argument : train_arguments(q, c.plan))
        for (const std::string& word : split(argument, ' ')) words.push_back(word);
      const Plan again = plan_of(config::resolve_flags(words).values, q.model, q.cluster);
      EXPECT_EQ(again.mesh.sizes, c.plan.mesh.sizes) << join(words, " ");
      EXPECT_EQ(again.mesh.ep, c.plan.mesh.ep);
      EXPECT_TRUE(same_strategy(again.strategy, c.plan.strategy));
      EXPECT_EQ(again.schedule, c.plan.schedule);
      EXPECT_EQ(again.stages_per_rank, c.plan.stages_per_rank);
      EXPECT_EQ(again.rows, c.plan.rows);
      EXPECT_EQ(again.micro_batches, c.plan.micro_batches);
      EXPECT_EQ(again.recompute, c.plan.recompute);
      EXPECT_EQ(again.sequence_parallel, c.plan.sequence_parallel);
      EXPECT_EQ(evaluate(q, again).memory.total(), c.memory.total());
    }
  }
}

// The names of --pipeline_layout are planned with the trainer's cuts: a last stage that has the head has fewer blocks,
// and blocks may be split.
TEST(PlanSearch, LayoutsByFlopAreThoseOfTheRun) {
  const Question q = question("gpt2", "4xH100", 32, 1024);
  const auto planned = [&](const std::string& layout) {
    std::vector<std::string> words = {"--config_name", "gpt2", "--pp_size", "4", "--gradient_accumulation_steps", "8"};
    if (!layout.empty()) words.insert(words.end(), {"--pipeline_layout", layout});
    return plan_of(config::resolve_flags(words).values, q.model, q.cluster);
  };
  const Plan even = planned(""), flops = planned("flops"), halves = planned("half_blocks");
  EXPECT_EQ(even.parts.back().blocks, 3);
  EXPECT_LT(flops.parts.back().blocks, 3);
  EXPECT_TRUE(layout::cuts_blocks(halves.parts));
  const double seconds = evaluate(q, even).seconds;
  EXPECT_LT(evaluate(q, flops).seconds, 0.97 * seconds);
  EXPECT_LT(evaluate(q, halves).seconds, 0.97 * seconds);
  EXPECT_NE(evaluate(q, halves).seconds, evaluate(q, flops).seconds);
}

TEST(PlanSearch, ThreadsChangeNothing) {
  for (const char* cluster : {"16xH100", "64xA100-40"}) {
    Question q = question("olmoe-1b-7b", cluster, 128, 4096);
    q.threads = 1;
    const Answer one = search(q);
    ASSERT_FALSE(one.best.empty());
    for (const int threads : {2, 5}) {
      q.threads = threads;
      const Answer several = search(q);
      EXPECT_EQ(one.points, several.points);
      ASSERT_EQ(one.best.size(), several.best.size());
      for (std::size_t i = 0; i < one.best.size(); ++i) {
        EXPECT_EQ(one.best[i].seconds, several.best[i].seconds);
        EXPECT_EQ(train_arguments(q, one.best[i].plan), train_arguments(q, several.best[i].plan));
      }
    }
  }
}

// Twice the devices for the same batch: the best plan is slower at most by the cost of synchronization.
TEST(PlanSearch, MoreDevicesAreNotSlower) {
  double before = 1e300;
  for (const char* cluster : {"16xH100", "32xH100", "64xH100", "128xH100", "256xH100"}) {
    const Answer answer = search(question("llama-2-13b", cluster, 1024, 4096));
    ASSERT_FALSE(answer.best.empty());
    EXPECT_LT(answer.best[0].seconds, 1.02 * before) << cluster;
    before = answer.best[0].seconds;
  }
}

// The middle of a pipeline is periodic: extrapolating from a few micro-batches equals simulating all of them.
TEST(PlanSearch, FewMicroBatchesStandForMany) {
  for (const char* name : {"1f1b", "interleaved_1f1b", "zb_h1", "zbv"}) {
    Question q = question("llama-2-7b", "8xA100", 67, 2048);
    q.pp = 8;
    q.schedule = name;
    q.memory_limit = 1e15;
    const Answer answer = search(q);
    ASSERT_FALSE(answer.best.empty()) << name;
    Plan few = answer.best[0].plan, more = few;
    few.micro_batches = 35;   // more than 4 p
    more.micro_batches = 67;  // the same remainder modulo p
    const double a = evaluate(q, few).time[TimeKind::bubble], b = evaluate(q, more).time[TimeKind::bubble];
    EXPECT_NEAR(a, b, 1e-9 * b) << name;
    Plan all = few;
    all.micro_batches = 32;  // simulated completely
    EXPECT_NEAR(evaluate(q, all).time[TimeKind::bubble], a, 0.05 * a + 1e-9) << name;
  }
}

TEST(PlanSearch, NothingFitsIsSaid) {
  const Answer answer = search(question("llama-3-405b", "8xH100", 64, 8192));
  EXPECT_TRUE(answer.best.empty());
  ASSERT_TRUE(answer.smallest.has_value());
  EXPECT_GT(answer.smallest->memory.total(), 80e9);
  EXPECT_EQ(answer.points, answer.too_large);
}

TEST(PlanSearch, NeighboursSayWhyTheyLose) {
  const Question q = question("llama-3-70b", "64xH100", 512, 8192);
  const Answer answer = search(q);
  ASSERT_FALSE(answer.best.empty());
  int larger = 0, slower = 0;
  for (const Neighbour& n : neighbours(q, answer.best[0])) {
    larger += n.verdict.starts_with("does not fit: ");
    slower += n.verdict.find(" % slower") != std::string::npos;
  }
  EXPECT_GE(larger, 1);
  EXPECT_GE(slower, 2);
}

TEST(PlanSearch, ContradictionsAreRefused) {
  Question q = question("llama-3-8b", "8xH100", 64, 8192);
  q.sequence = 10000;
  EXPECT_NE(error_of([&] { search(q); }).find("has 8192 positions"), std::string::npos);
  q = question("llama-3-8b", "64xH100", 7, 8192);
  q.tp = q.pp = q.cp = 1;
  EXPECT_NE(error_of([&] { search(q); }).find("a batch of 64 rows allows all of them"), std::string::npos);
  EXPECT_NE(error_of([] { parse_cluster("12xH100"); }).find("do not fill nodes of 8; 8 or 16 do"), std::string::npos);
  EXPECT_NE(error_of([] { parse_cluster("8xA1000"); }).find("did you mean A100?"), std::string::npos);
  EXPECT_NE(error_of([] { parse_cluster("0xA100"); }).find("is not a number of devices"), std::string::npos);
}

TEST(Hardware, ReadsBackWhatItWrites) {
  for (const std::string& name : hardware_names()) {
    const Cluster given = parse_cluster(name);
    const Value value = parse_json(dump_json(hardware_value(given)), "h.json");
    const Cluster read = read_hardware(value);
    EXPECT_EQ(dump_json(hardware_value(read)), dump_json(hardware_value(given)));
    EXPECT_FALSE(given.device.source.empty());
  }
  const auto refused = [](const char* json) { return error_of([&] { read_hardware(parse_json(json, "h.json")); }); };
  EXPECT_NE(refused(R"({"like": "H100", "memori": 1e9})").find("unknown member \"memori\"; did you mean memory?"),
            std::string::npos);
  EXPECT_NE(refused(R"({"like": "H100", "memory": -1})").find("it must be in"), std::string::npos);
  EXPECT_NE(refused(R"({"name": "x"})").find("\"memory\" is missing"), std::string::npos);
  EXPECT_EQ(read_hardware(parse_json(R"({"like": "H100", "memory": 96e9})", "h.json")).device.memory, 96e9);
}

TEST(Goodput, FollowsFailures) {
  const Goodput few = goodput(parse_cluster("64xH100"), 30), many = goodput(parse_cluster("16384xH100"), 30);
  EXPECT_GT(few.share, 0.99);
  EXPECT_LT(many.share, few.share);
  EXPECT_NEAR(many.failures_per_day, 419.0 / 54, 0.5);  // Grattafiori et al. 2024, table 5
}

TEST(PlanFromConfig, OptimizersKeepWhatTheirArgumentsAskFor) {
  const auto states = [](std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--config_name", "gpt2-tiny"});
    const RunConfig config = config::resolve_flags(flags).values;
    return plan_on(config, model_of(config), layout::parse_mesh("dp_replicate=1"), true).numerics.states;
  };
  EXPECT_EQ(states({}), 8);
  EXPECT_EQ(states({"--optim", "adagrad"}), 4);
  EXPECT_EQ(states({"--optim", "rmsprop"}), 4);
  EXPECT_EQ(states({"--optim", "rmsprop", "--optim_args", "momentum=0.9,centered=true"}), 12);
  EXPECT_EQ(states({"--optim", "paged_adamw_8bit"}), 2.125);
}

// Embedding tables keep 32-bit states: 8 bytes per element, where other parameters have 2.125.
TEST(PlanFromConfig, StatesOfEightBitsLeaveTablesWide) {
  const auto bytes = [](const char* optim) {
    const RunConfig config = config::resolve_flags({"--config_name", "llama-tiny", "--optim", optim}).values;
    const Model model = model_of(config);
    return memory_by_rank(model, plan_on(config, model, layout::parse_mesh("dp_replicate=1"), true),
                          0)[0][MemoryKind::optimizer];
  };
  const Model model = model_of(config::resolve_flags({"--config_name", "llama-tiny"}).values);
  const double tables = elements_of(model, 1, 1).embeddings.all();
  ASSERT_GT(tables, 0);
  EXPECT_NEAR(bytes("adamw_8bit"), bytes("adamw") * 2.125 / 8 + tables * (8 - 2.125), 1);
  EXPECT_NEAR(bytes("lion_8bit"), bytes("lion") * 1.0625 / 4 + tables * (4 - 1.0625), 1);
}

}  // namespace
}  // namespace tessera::plan
