#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <tessera/base/text.h>
#include <tessera/train/reporting/advice.h>

namespace tessera::train {
namespace {

constexpr std::int64_t gib = std::int64_t{1} << 30;

/// Two processes on one host that compute almost all of the time.
Utilization good_run() {
  Utilization run;
  run.seconds = {0.01, 0.30, 0.60, 0.05, 0.03, 0.01};
  run.cpu_utilization = 0.95;
  run.flops_utilization = 0.6;
  run.ranks = run.local_ranks = 2;
  run.threads = 2;
  run.micro_batch = 16;
  run.peak_bytes = 2 * gib;
  run.activation_bytes = gib;
  run.machine_bytes = 24 * gib;
  return run;
}

void expect_says(const Advice& advice, const std::string& bound, std::initializer_list<const char*> parts) {
  EXPECT_EQ(advice.bound, bound) << advice.text;
  for (const char* part : parts) EXPECT_NE(advice.text.find(part), std::string::npos) << part << " in: " << advice.text;
}

TEST(Advice, ComputingIsAsItShouldBe) {
  expect_says(advise(good_run()), "compute-bound", {"93 %", "95 % busy", "60 % of the peak", "as it should be"});
}

TEST(Advice, OneStepSaysNothing) {
  Utilization run = good_run();
  run.flops_utilization = 0.01;
  run.micro_batch = 1;
  run.steps = 1;
  EXPECT_EQ(advise(run).text.find("raise"), std::string::npos);
  expect_says(advise(run), "compute-bound", {"93 % of the time goes into computing", "1 step is too few for advice"});
}

TEST(Advice, IdleThreads) {
  Utilization run = good_run();
  run.cpu_utilization = 0.4;
  expect_says(advise(run), "compute-bound", {"40 % busy", "2 threads", "--per_device_train_batch_size (now 16)"});
}

TEST(Advice, WaitingForOthersIsNotIdleness) {
  Utilization run = good_run();
  run.seconds = {0, 0.27, 0.54, 0.19, 0, 0};
  run.cpu_utilization = 0.6;
  expect_says(advise(run), "compute-bound", {"as it should be"});
}

TEST(Advice, CoresThatOthersUse) {
  Utilization run = good_run();
  run.cpu_utilization = 0.4;
  run.cores = 2;
  expect_says(advise(run), "compute-bound", {"4 threads share 2 cores", "--num_processes"});
  run.threads = 1;
  expect_says(advise(run), "compute-bound", {"other programs"});
}

TEST(Advice, SmallMatrices) {
  Utilization run = good_run();
  run.flops_utilization = 0.1;
  run.micro_batch = 1;
  run.accumulation = 8;
  expect_says(advise(run), "compute-bound", {"10 % of the peak", "(now 1)", "lower --gradient_accumulation_steps"});
  run.micro_batch = 32;
  expect_says(advise(run), "compute-bound", {"wider model"});
}

TEST(Advice, Communication) {
  Utilization run = good_run();
  at(run.seconds, Phase::communication) = 0.94;  // equals the sum of the other phases except logging
  expect_says(advise(run), "communication-bound",
              {"50 %", "other 1 process", "--gradient_accumulation_steps (now 1)", "fewer processes"});
  run.gathers_parameters = true;
  expect_says(advise(run), "communication-bound", {"50 %", "--per_device_train_batch_size (now", "--zero_stage 2"});
  run.cut_axis = "tp";
  expect_says(advise(run), "communication-bound", {"50 %", "most of it along tp", "lower --tp_size"});
  run.cut_axis = "ep";
  expect_says(advise(run), "communication-bound", {"most of it along ep", "lower --ep_size"});
  run.cut_axis = "pp";
  expect_says(advise(run), "communication-bound", {"most of it along pp", "(now 1)", "--pipeline_schedule"});
  run.cut_axis = "";
  run.gathers_parameters = false;
  run.local_ranks = 1;
  EXPECT_EQ(advise(run).text.find("fewer processes"), std::string::npos) << "each host has one already";
  run.ranks = 1;
  EXPECT_NE(advise(run).bound, "communication-bound") << "no other rank to wait for";
}

TEST(Advice, Input) {
  Utilization run = good_run();
  at(run.seconds, Phase::data) = 2;
  expect_says(advise(run), "input-bound", {"67 %", "tessera tokenize"});
}

TEST(Advice, LogsAndCheckpoints) {
  Utilization run = good_run();
  at(run.seconds, Phase::other) = 3;
  expect_says(advise(run), "overhead-bound", {"75 %", "--eval_steps"});
}

TEST(Advice, Memory) {
  Utilization run = good_run();
  run.peak_bytes = 11 * gib;
  run.activation_bytes = 8 * gib;
  expect_says(
      advise(run), "memory-bound",
      {"2 processes need 22.0 GiB of the host's 24.0 GiB", "73 %", "halve --per_device_train_batch_size (now 16)"});
  run.activation_bytes = gib;
  expect_says(advise(run), "memory-bound", {"fewer processes"});
  run.local_ranks = 1;
  run.peak_bytes = 22 * gib;
  expect_says(advise(run), "memory-bound", {"--lora_r"});
  run.activation_bytes = 20 * gib;
  run.micro_batch = 1;
  expect_says(advise(run), "memory-bound", {"--block_size"});
}

TEST(Advice, NothingMeasured) { EXPECT_NE(advise({}).line().find("nothing was measured"), std::string::npos); }

RC_GTEST_PROP(Advice, IsAlwaysOneLineWithANumber, ()) {
  Utilization run;
  for (double& seconds : run.seconds) seconds = *rc::gen::inRange(0, 1000) * 1e-3;
  run.seconds[1] += 1e-3;
  run.cpu_utilization = *rc::gen::inRange(0, 300) * 1e-2;
  run.flops_utilization = *rc::gen::inRange(0, 150) * 1e-2;
  run.ranks = *rc::gen::inRange(1, 65);
  run.local_ranks = *rc::gen::inRange<std::int64_t>(1, run.ranks + 1);
  run.cores = *rc::gen::inRange(0, 9);
  run.threads = *rc::gen::inRange(1, 5);
  run.peak_bytes = *rc::gen::inRange<std::int64_t>(0, 64 * gib);
  run.activation_bytes = *rc::gen::inRange<std::int64_t>(0, run.peak_bytes + 1);
  run.machine_bytes = *rc::gen::element<std::int64_t>(0, 24 * gib, 1024 * gib);
  const std::string line = advise(run).line();
  RC_ASSERT(line.find('\n') == std::string::npos);
  RC_ASSERT(line.find(" %") != std::string::npos || line.find("iB") != std::string::npos);
  RC_ASSERT(line.size() < 300);
}

}  // namespace
}  // namespace tessera::train
