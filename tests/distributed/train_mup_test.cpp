// --use_mup: the same training on any number of processes, however the model is divided.

#include "resume_jobs.h"

#include <cmath>

namespace tessera::testing {
namespace {

class TrainMup : public ResumeJobs {
 protected:
  void train_on(const std::string& output, int ranks, const Words& more) const {
    static const Words model = {
        "--config_name", "llama-tiny", "--config_overrides",
        "num_hidden_layers=2,hidden_size=64,num_attention_heads=4,num_key_value_heads=2,head_dim=16,"
        "intermediate_size=96,vocab_size=257,max_position_embeddings=16",
        "--use_mup", "--mup_base_hidden_size", "16", "--mup_embedding_mult", "2"};
    const RunConfig run =
        config(output, 6, model + Words{"--per_device_train_batch_size", concat(4 / data_ranks(ranks, more))} + more);
    run_ranks(
        ranks,
        [&](comm::World&) {
          be_quiet();
          EXPECT_EQ(train::train(run, Value::make_object()), ExitCode::done) << output;
        },
        time_limit(90));
  }
  static int data_ranks(int ranks, const Words& more) {
    return std::find(more.begin(), more.end(), "--tp_size") == more.end() &&
                   std::find(more.begin(), more.end(), "--pp_size") == more.end()
               ? ranks
               : 1;
  }
  std::vector<double> losses(const std::string& output) const {
    std::vector<double> all;
    const std::string file = path_join(path(output), "metrics.jsonl");
    for (const std::string& line : split(read_file(file), '\n')) {
      if (line.empty()) continue;
      const Value value = parse_json(line, file);
      if (value.find("event") == nullptr) all.push_back(value.at("loss").as_real());
    }
    return all;
  }
  void expect_near(const std::string& output, const std::vector<double>& expected) const {
    const auto got = losses(output);
    ASSERT_EQ(got.size(), expected.size()) << output;
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 2e-5 * expected[i]) << output << i;
  }
};

TEST_F(TrainMup, EqualHoweverTheModelIsDivided) {
  const Words no_saves = {"--save_strategy", "no"};
  train_on("one", 1, no_saves);
  const std::vector<double> all = losses("one");
  ASSERT_EQ(all.size(), 6u);
  train_on("tp2", 2, no_saves + Words{"--tp_size", "2"});
  train_on("pp2", 2,
           no_saves + Words{"--pp_size", "2", "--per_device_train_batch_size", "2", "--gradient_accumulation_steps",
                            "2"});
  train_on("zero1", 2, Words{"--zero_stage", "1", "--save_steps", "3"});
  train_on("full", 2, no_saves + Words{"--fsdp", "full_shard auto_wrap"});
  for (const char* name : {"tp2", "pp2", "zero1", "full"}) expect_near(name, all);
  train_on("resumed", 2,
           no_saves + Words{"--fsdp", "full_shard auto_wrap", "--resume_from_checkpoint", path("zero1/checkpoint-3")});
  expect_near("resumed", {all.begin() + 3, all.end()});

  // A folder that such a run has written says by itself what its learning rates are.
  const Words from = {"--max_steps", "2", "--warmup_steps", "0", "--save_strategy", "no"};
  const auto go_on = [&](const std::string& output) {
    const RunConfig run = config(output, 2, Words{"--model_name_or_path", path("zero1")} + from);
    run_ranks(
        1,
        [&](comm::World&) {
          be_quiet();
          EXPECT_EQ(train::train(run, Value::make_object()), ExitCode::done);
        },
        time_limit(60));
  };
  go_on("with");
  const std::string file = path("zero1/config.json");
  Value json = parse_json(read_file(file), file);
  ASSERT_TRUE(json.at("use_mup").as_bool());
  json.set("mup_output_mult", Value::of(0.25));  // what it is anyway: only the rates differ
  json.set("mup_base_hidden_size", Value::of(64));
  write_file_atomically(file, dump_json(json));
  go_on("without");
  EXPECT_NEAR(losses("with")[0], losses("without")[0], 1e-5);
  EXPECT_GT(std::abs(losses("with")[1] - losses("without")[1]), 1e-4);
}

}  // namespace
}  // namespace tessera::testing
