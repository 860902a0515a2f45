// tessera plan as a user runs it.

#include "program.h"

#include <tessera/base/text.h>
#include <tessera/base/value.h>

namespace tessera::testing {
namespace {

TEST(PlanCommand, groups_of_a_mesh) {
  const auto run = tessera({"plan", "groups", "--mesh", "pp=2,dp=2,tp=2"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  for (const char* line :
       {"8 ranks\n  dense   pp=2 dp_replicate=1 dp_shard=2 cp=1 tp=2\n  expert  pp=2 edp=2 ep=1 etp=2\n",
        "\n     6     1             0         1   0   0   |    1    0    0\n",
        "\n  tp               4 x    2   [0 1] [2 3] [4 5] [6 7]\n",
        "\n  dp               4 x    2   [0 2] [1 3] [4 6] [5 7]\n",
        "\n  pp               4 x    2   [0 4] [1 5] [2 6] [3 7]\n", "of one rank each: dp_replicate, cp, ep\n"})
    EXPECT_NE(run.out.find(line), std::string::npos) << line << "\n" << run.out;
}

TEST(PlanCommand, one_rank_one_group_many_ranks) {
  const std::string grid = "tp=2,cp=2,dp=-1,ep=4,etp=1";
  const auto one = tessera({"plan", "groups", "--mesh", grid, "--world_size", "8", "--rank", "5", "--group", "dp-cp"});
  EXPECT_NE(one.out.find("\n  dp-cp            4   [1 3 5 7]\n"), std::string::npos) << one.out << one.err;
  EXPECT_EQ(one.out.find("etp  "), std::string::npos) << one.out;
  const Strings many = {"plan", "groups", "--mesh", grid, "--world_size", "128"};
  EXPECT_NE(tessera(many).out.find("64 more (--all prints them"), std::string::npos);
  EXPECT_NE(tessera(many + Strings{"--all"}).out.find("\n   127 "), std::string::npos);
  EXPECT_NE(
      tessera(many + Strings{"--ranks_per_host=9"}).out.find("warning: tp=2 does not divide the 9 ranks of a host"),
      std::string::npos);
}

TEST(PlanCommand, what_is_wrong_is_said) {
  const std::vector<std::pair<Strings, std::string>> table = {
      {{"plan"}, "a command is missing"},
      {{"plan", "grups"}, "unknown 'grups'"},
      {{"plan", "groups"}, "--mesh"},
      {{"plan", "groups", "--mesh", "tp=3", "--world_size", "8"}, "tp=3 does not divide the 8 ranks"},
      {{"plan", "groups", "--mesh", "tp=2", "--rank", "2"}, "--rank 2: expected a whole number from 0 to 1"},
      {{"plan", "groups", "--mesh", "tp=2", "--group", "tq"}, "unknown axis 'tq'"},
      {{"plan", "groups", "--mesh", "tp=1073741823"}, "at most 16777216"},
      {{"plan", "--gpus", "8xH100"}, "no model: add --model"},
      {{"plan", "--model", "llama-3-8b", "--global_batch", "8"}, "no devices: add --gpus"},
      {{"plan", "--model", "lama-3-8b", "--gpus", "8xH100", "--global_batch", "8"}, "did you mean llama-3-8b?"},
      {{"plan", "--model", "llama-3-8b", "--gpus", "8xH1000", "--global_batch", "8"}, "did you mean H100?"},
      {{"plan", "--model", "llama-3-8b", "--gpus", "8xH100", "--global_batch", "8", "--tp", "3"},
       "--tp 3 does not divide the 8 devices"},
      {{"plan", "--model", "llama-3-8b", "--gpus", "8xH100", "--global_batch", "8", "--strategy", "zero4"},
       "--strategy"},
      {{"plan", "check", "--config_name", "llama-3-8b", "--gpus", "8xH100", "--tp_size", "16"}, "tp_size"},
      {{"plan", "check", "--config_name", "llama-3-8b", "--gpus", "8xH100", "--engine", "nemu"},
       "one of tessera, megatron"},
      {{"plan", "--model", "llama-3-8b", "--gpus", "8xH100", "--global_batch", "8", "--engine", "megatrom"},
       "did you mean megatron?"},
      {{"plan", "--model", "llama-3-8b", "--gpus", "8xH100", "--global_batch", "8", "--engine_year", "2022"},
       "--engine_year needs --engine"},
      {{"plan", "--model", "llama-3-8b", "--gpus", "8xH100", "--global_batch", "8", "--engine", "fsdp2",
        "--engine_year", "1999"},
       "2019 to 2100"},
      {{"plan", "check", "--config_name", "llama-3-8b", "--gpus", "8xH100", "--fused_loss"}, "--engine megatron"},
      {{"plan", "check", "--config_name", "llama-3-8b", "--engine", "megatron"}, "needs GPUs"},
      {{"plan", "check", "--config_name", "llama-3-8b", "--gpus", "8xH100", "--engine=megatron", "--strategy=zero3"},
       "is not supported; use zero1 (its distributed optimizer)"},
  };
  for (const auto& [arguments, words] : table) {
    const auto run = tessera(arguments);
    EXPECT_EQ(run.exit_code, 2) << run.err;
    EXPECT_NE(run.err.find(words), std::string::npos) << run.err;
  }
  EXPECT_EQ(tessera({"plan", "groups", "--help"}).exit_code, 0);
}

TEST(PlanCommand, whose_engine_and_how_sure) {
  const Strings question = {"plan", "--model", "llama-2-7b", "--gpus", "64xA100", "--global_batch", "512"};
  const auto ours = tessera(question),
             old = tessera(question + Strings{"--engine", "megatron", "--engine_year", "2021"});
  EXPECT_NE(ours.out.find("% in nine of ten cases"), std::string::npos) << ours.out;
  EXPECT_EQ(ours.out.find("the same plan in tessera"), std::string::npos);
  EXPECT_NE(old.out.find(", megatron of 2021\n"), std::string::npos) << old.out << old.err;
  EXPECT_NE(old.out.find("the same plan in tessera: "), std::string::npos);
  EXPECT_NE(old.out.find("megatron of 2021 is "), std::string::npos);
  const Value json = parse_json(tessera(question + Strings{"--engine=deepspeed", "--json"}).out, "plan");
  EXPECT_EQ(json.at("engine").as_string(), "deepspeed");
  EXPECT_GE(json.at("equal").as_int(), 1);
  EXPECT_GT(json.at("plans").items()[0].at("messages").as_real(), 0);
  EXPECT_NE(json.at("against_tessera").as_string().find("deepspeed is "), std::string::npos);
  const Strings check = {"plan", "check", "--config_name", "llama-2-7b", "--gpus", "8xA100", "--bf16"};
  EXPECT_NE(
      tessera(check + Strings{"--engine", "deepspeed", "--engine_year", "2022"}).out.find("deepspeed of 2022 is "),
      std::string::npos);
}

TEST(PlanCommand, the_page_has_its_pictures) {
  const TemporaryFolder folder;
  const std::string path = path_join(folder.path(), "plan.html");
  const Strings question = {"plan", "--model", "llama-3-70b", "--gpus", "64xH100", "--global_batch", "64"};
  const auto run = tessera(question + Strings{"--html", path, "--pp", "4", "--price", "2.5", "--train_tokens", "1T"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const std::string page = read_file(path);
  for (const char* part : {"<h1>llama-3-70b on 64xH100</h1>", "Memory by rank and kind", "pp rank 3", "Time of a step",
                           "<h2>Pipeline</h2>", "<rect", "Tokens per second over devices", "<polyline", "<h2>Cost</h2>",
                           "dollars", "1.0 T tokens", "Why not another", "--pp_size 4"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  for (const char* outside : {"http://", "https://", "<script"}) {
    const std::size_t found = page.find(outside);
    EXPECT_TRUE(found == std::string::npos || page.compare(found, 18, "http://www.w3.org/") == 0) << outside;
  }
  EXPECT_EQ(std::count(page.begin(), page.end(), '{'), std::count(page.begin(), page.end(), '}'));
  EXPECT_EQ(tessera(question + Strings{"--price", "2"}).exit_code, 2);
  EXPECT_EQ(tessera(question + Strings{"--html", path, "--train_tokens", "1X"}).exit_code, 2);
}

TEST(PlanCommand, best_plans_of_a_cluster) {
  const Strings question = {"plan", "--model", "llama-3-8b", "--gpus", "8xH100", "--global_batch", "64"};
  const auto run = tessera(question + Strings{"--explain"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  for (const char* line : {"llama-3-8b, 8.0 G parameters, on 8xH100: 64 rows of 4096 tokens a step, bf16\n",
                           "   tokens/s   MFU   step s  memory  plan\n", "Changed in one setting\n",
                           "Run it\n  tessera train --num_processes 8 "})
    EXPECT_NE(run.out.find(line), std::string::npos) << line << "\n" << run.out;
  for (const std::string& line : split(run.out, '\n')) EXPECT_LE(line.size(), 120u) << line;
  const auto json = tessera(question + Strings{"--json", "--max", "2"});
  const Value value = parse_json(json.out, "plan");
  EXPECT_EQ(value.at("plans").items().size(), 2u);
  EXPECT_GT(value.at("plans").items()[0].at("tokens_per_second").as_real(), 1e4);
  const auto none = tessera({"plan", "--model", "llama-3-70b", "--gpus", "1xH100", "--global_batch", "1"});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_NE(none.out.find("Nothing fits"), std::string::npos) << none.out;
}

TEST(PlanCommand, check_says_whether_a_run_fits) {
  const Strings run = {"plan",       "check",        "--config_name", "llama-3-8b",
                       "--gpus",     "8xH100",       "--bf16",        "--strategy",
                       "full_shard", "--block_size", "8192",          "--per_device_train_batch_size",
                       "2"};
  const auto too_large = tessera(run);
  EXPECT_EQ(too_large.exit_code, 1) << too_large.err;
  EXPECT_NE(too_large.out.find("does not fit: every rank needs "), std::string::npos) << too_large.out;
  EXPECT_NE(too_large.out.find(": use --gradient_checkpointing: "), std::string::npos) << too_large.out;
  const auto fits = tessera(run + Strings{"--gradient_checkpointing"});
  EXPECT_EQ(fits.exit_code, 0) << fits.out << fits.err;
  EXPECT_NE(fits.out.find("fits: "), std::string::npos) << fits.out;
}

TEST(PlanCommand, check_answers_for_megatron_too) {
  const Strings llama_2_7b = {"--num-layers",
                              "32",
                              "--hidden-size",
                              "4096",
                              "--num-attention-heads",
                              "32",
                              "--ffn-hidden-size",
                              "11008",
                              "--vocab-size",
                              "32000",
                              "--tokenizer-type",
                              "NullTokenizer",
                              "--swiglu",
                              "--normalization",
                              "RMSNorm",
                              "--disable-bias-linear",
                              "--position-embedding-type",
                              "rope",
                              "--untie-embeddings-and-output-weights",
                              "--max-position-embeddings",
                              "4096",
                              "--hidden-dropout",
                              "0",
                              "--attention-dropout",
                              "0"};
  const Strings run = {"--seq-length",
                       "4096",
                       "--mock-data",
                       "--train-iters",
                       "9",
                       "--lr",
                       "1e-4",
                       "--bf16",
                       "--micro-batch-size",
                       "1",
                       "--global-batch-size",
                       "32",
                       "--use-distributed-optimizer",
                       "--tensor-model-parallel-size",
                       "2",
                       "--sequence-parallel"};
  const Strings command = Strings{"plan", "check"} + llama_2_7b + run + Strings{"--gpus", "8xH100"};
  const auto ours = tessera(command), theirs = tessera(command + Strings{"--engine", "megatron"}),
             fused = tessera(command + Strings{"--engine=megatron", "--fused_loss"});
  for (const auto& [answer, words] : {std::pair(ours, "\nfits: "), std::pair(theirs, "\nfits in Megatron-LM: ")}) {
    EXPECT_EQ(answer.exit_code, 0) << answer.out << answer.err;
    EXPECT_NE(answer.out.find(words), std::string::npos) << answer.out << answer.err;
  }
  // 6.74 billion parameters over two ranks, at 2, 4 and 12 / 4 bytes.
  for (const char* line : {"parameters       6.74 GB", "gradients        13.5 GB", "optimizer        10.1 GB"})
    EXPECT_NE(theirs.out.find(line), std::string::npos) << line << "\n" << theirs.out;
  EXPECT_NE(theirs.out, fused.out);
}

}  // namespace
}  // namespace tessera::testing
