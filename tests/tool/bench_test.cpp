#include "program.h"

#include <algorithm>

namespace tessera::testing {
namespace {

std::vector<Value> json_lines(const std::string& text) {
  std::vector<Value> lines;
  for (const std::string& line : split(text, '\n'))
    if (!line.empty()) lines.push_back(parse_json(line, "output"));
  return lines;
}

TEST(BenchComm, OneObjectPerMeasurement) {
  const auto run = tessera({"bench", "comm", "--num_processes", "2", "--backend", "gloo", "--op", "all_reduce",
                            "--bytes", "4096", "--rounds", "3", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto lines = json_lines(run.out);
  ASSERT_EQ(lines.size(), 1u) << run.out;
  const Value& line = lines[0];
  EXPECT_EQ(line.at("op").as_string(), "all_reduce");
  EXPECT_EQ(line.at("backend").as_string(), "gloo");
  EXPECT_EQ(line.at("ranks").as_int(), 2);
  EXPECT_EQ(line.at("bytes").as_int(), 4096);
  EXPECT_EQ(line.at("rounds").as_int(), 3);
  EXPECT_FALSE(line.at("shared").as_bool());
  const double latency = line.at("latency_us").as_real(), algbw = line.at("algbw_gb_per_s").as_real();
  EXPECT_GT(latency, 0);
  EXPECT_LE(latency, line.at("latency_p95_us").as_real());
  EXPECT_NEAR(algbw, 4096 / latency * 1e-3, 1e-4 * algbw);
  EXPECT_NEAR(line.at("busbw_gb_per_s").as_real(), algbw, 1e-4 * algbw) << "2 (R-1)/R = 1 for two ranks";
}

TEST(BenchComm, EveryOperationIsRightOnThreeRanks) {
  // 1000 bytes are not a whole number of elements for three ranks: they are rounded up where each rank has a part.
  const auto run = tessera({"bench", "comm", "--num_processes", "3", "--backend", "gloo", "--op", "all", "--bytes",
                            "1000", "--rounds", "1", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto lines = json_lines(run.out);
  ASSERT_EQ(lines.size(), 10u) << run.out;
  for (const Value& line : lines) {
    const std::string& op = line.at("op").as_string();
    const bool in_parts =
        op == "reduce_scatter" || op == "all_gather" || op == "all_to_all" || op == "scatter" || op == "gather";
    EXPECT_EQ(line.at("bytes").as_int(), op == "barrier" ? 0 : in_parts ? 1008 : 1000) << op;
    const double ratio = line.at("busbw_gb_per_s").as_real() / std::max(1e-12, line.at("algbw_gb_per_s").as_real());
    EXPECT_NEAR(ratio, op == "barrier" ? 0 : op == "all_reduce" ? 4 / 3. : in_parts ? 2 / 3. : 1, 1e-2) << op;
  }
}

TEST(BenchComm, TwoBackendsTakeTurns) {
  const auto run =
      tessera({"bench", "comm", "--num_processes", "2", "--backend", "gloo,c10d_gloo", "--op", "all_gather,barrier",
               "--bytes", "1K..2K", "--rounds", "2", "--dtype", "bfloat16", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto lines = json_lines(run.out);
  ASSERT_EQ(lines.size(), 6u) << run.out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].at("backend").as_string(), i % 2 == 0 ? "gloo" : "c10d_gloo");
    EXPECT_EQ(lines[i].find("time_ratio") != nullptr, i % 2 == 1);
  }
  EXPECT_EQ(lines[2].at("bytes").as_int(), 2048);
  EXPECT_EQ(lines[1].at("compared_with").as_string(), "gloo");
  EXPECT_GT(lines[1].at("time_ratio").as_real(), 0);

  const auto table =
      tessera({"bench", "comm", "--num_processes", "1", "--op", "all_reduce", "--bytes", "1M", "--rounds", "1"});
  ASSERT_EQ(table.exit_code, 0) << table.err;
  EXPECT_TRUE(contains(table.out, "all_reduce: 1 rank, float32") && contains(table.out, "1.0 MiB")) << table.out;
}

TEST(BenchComm, SharedTensorsWork) {
  const auto run = tessera({"bench", "comm", "--num_processes", "2", "--backend", "gloo", "--shared", "--op",
                            "reduce_scatter", "--bytes", "64K", "--rounds", "1", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(json_lines(run.out).at(0).at("shared").as_bool());
}

TEST(Bench, BadOptions) {
  const std::vector<std::pair<Strings, Strings>> cases = {
      {{"bench"}, {"a benchmark name is missing"}},
      {{"bench", "com"}, {"'com'", "did you mean 'comm'"}},
      {{"bench", "comm", "--op", "all_redce"}, {"all_redce", "did you mean 'all_reduce'"}},
      {{"bench", "comm", "--backend", "goo"}, {"goo", "did you mean 'gloo'"}},
      {{"bench", "comm", "--bytes", "3X"}, {"3X", "64M"}},
      {{"bench", "comm", "--bytes", "64K..1K"}, {"64K..1K", "empty"}},
      {{"bench", "comm", "--dtype", "float23"}, {"float23", "float32"}},
      {{"bench", "comm", "--rounds", "0"}, {"--rounds is 0"}},
      {{"bench", "comm", "--round", "3"}, {"--round", "did you mean --rounds"}},
      {{"bench", "scaling", "--processes", "2,1"}, {"2,1", "ascend"}},
      {{"bench", "scaling", "--mode", "stong"}, {"did you mean 'strong'"}},
      {{"bench", "scaling", "--", "--max_steps", "3"}, {"--max_steps", "itself"}},
      {{"bench", "scaling", "--processes", "2,3", "--rows", "1"}, {"3 rows", "2 processes"}},
      {{"bench", "scaling", "--processes", "1", "--", "--lerning_rate", "1"}, {"--lerning_rate", "did you mean"}}};
  for (const auto& [arguments, parts] : cases) {
    const auto run = tessera(arguments);
    EXPECT_EQ(run.exit_code, 2) << join(arguments, " ") << "\n" << run.err;
    EXPECT_EQ(run.out, "") << join(arguments, " ");
    for (const std::string& part : parts) EXPECT_TRUE(contains(run.err, part)) << "'" << part << "' in: " << run.err;
  }
}

TEST(Bench, Help) {
  for (const Strings& arguments :
       {Strings{"bench", "--help"}, {"bench", "comm", "--help"}, {"bench", "scaling", "-h"}}) {
    const auto run = tessera(arguments);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_TRUE(contains(run.out, "tessera bench")) << run.out;
  }
}

TEST(BenchScaling, SaysWhereTheTimeGoes) {
  const Strings tiny = {"--",
                        "--config_name",
                        "gpt2-tiny",
                        "--config_overrides",
                        "n_layer=1,n_embd=16,n_head=2,vocab_size=257,n_positions=32,bos_token_id=256,eos_token_id=256",
                        "--tokenizer_name",
                        "byte",
                        "--block_size",
                        "32",
                        "--backend",
                        "gloo"};
  const auto run = tessera(
      Strings{"bench", "scaling", "--processes", "1,2", "--mode", "strong", "--steps", "4", "--warmup", "1", "--json"} +
      tiny);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto lines = json_lines(run.out);
  ASSERT_EQ(lines.size(), 2u) << run.out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Value& line = lines[i];
    EXPECT_EQ(line.at("mode").as_string(), "strong");
    EXPECT_EQ(line.at("processes").as_int(), i == 0 ? 1 : 2);
    EXPECT_EQ(line.at("rows_per_step").as_int(), 4);
    EXPECT_GT(line.at("tokens_per_second").as_real(), 0);
    double lost = 0, phases = 0;
    for (const auto& [name, share] : line.at("lost").members()) lost += share.as_real();
    for (const auto& [name, ms] : line.at("phase_ms").members()) phases += ms.as_real();
    EXPECT_NEAR(lost, 1 - line.at("efficiency").as_real(), 1e-2);
    EXPECT_NEAR(phases, line.at("step_ms").as_real(), 1e-2 * line.at("step_ms").as_real());
  }
  EXPECT_NEAR(lines[0].at("speed_up").as_real(), 1, 1e-9);
  EXPECT_NEAR(lines[1].at("efficiency").as_real(), lines[1].at("speed_up").as_real() / 2, 1e-4);
}

}  // namespace
}  // namespace tessera::testing
