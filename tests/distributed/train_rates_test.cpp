// Settings that affect the weight updates, on any number of processes: Muon, separate learning rates for embeddings,
// width-scaled rates (muP), batch sizes by a list; and a run that ends by the clock.

#include "resume_jobs.h"

#include <ATen/ATen.h>

#include <tessera/checkpoint/checkpoint.h>

#include <cmath>
#include <map>

namespace tessera::testing {
namespace {

const Words no_saves = {"--save_strategy", "no"};
const Words micro2 = {"--gradient_accumulation_steps", "2"}, micro4 = {"--gradient_accumulation_steps", "4"};

class TrainRates : public ResumeJobs {
 protected:
  void train_on(const std::string& output, int ranks, std::int64_t steps, const Words& more,
                ExitCode code = ExitCode::done) const {
    const RunConfig run = config(output, steps, more);
    run_ranks(
        ranks,
        [&](comm::World&) {
          be_quiet();
          EXPECT_EQ(train::train(run, Value::make_object()), code) << output;
        },
        time_limit(90));
  }

  std::vector<double> column(const std::string& output, const char* name) const {
    std::vector<double> numbers;
    const std::string file = path_join(path(output), "metrics.jsonl");
    for (const std::string& line : split(read_file(file), '\n')) {
      if (line.empty()) continue;
      const Value value = parse_json(line, file);
      if (value.find("event") == nullptr) numbers.push_back(value.at(name).as_real());
    }
    return numbers;
  }

  void expect_same_losses(const std::string& output, const std::vector<double>& expected) const {
    const auto got = column(output, "loss");
    ASSERT_EQ(got.size(), expected.size()) << output;
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-5 * expected[i]) << output << i;
  }

  std::map<std::string, at::Tensor> weights(const std::string& output) const {
    std::map<std::string, at::Tensor> all;
    for (const auto& [name, tensor] : checkpoint::read_hf_weights(path(output))) all[name] = tensor;
    return all;
  }
};

TEST_F(TrainRates, muon_is_the_same_on_any_number_of_ranks) {
  const Words muon = {"--optim", "muon", "--learning_rate", "2e-2"};
  train_on("one", 1, 6, muon + micro4 + no_saves);
  train_on("ddp2", 2, 6, muon + micro2 + no_saves);
  train_on("zero1", 2, 6, muon + micro2 + Words{"--zero_stage", "1", "--save_steps", "3"});
  train_on("full4", 4, 6, muon + no_saves + Words{"--fsdp", "full_shard auto_wrap"});
  const auto losses = column("one", "loss");
  train_on("pp2", 2, 6, muon + micro4 + no_saves + Words{"--pp_size", "2"});
  train_on("cp2", 2, 6, muon + micro4 + no_saves + Words{"--cp_size", "2"});
  for (const char* name : {"ddp2", "zero1", "full4", "pp2", "cp2"}) expect_same_losses(name, losses);
  train_on("resumed", 4, 6,
           muon + no_saves +
               Words{"--fsdp", "full_shard auto_wrap", "--resume_from_checkpoint", path("zero1/checkpoint-3")});
  expect_same_losses("resumed", {losses.begin() + 3, losses.end()});

  // Each matrix of a block changes by a multiple of an orthogonal matrix; an embedding does not.
  train_on("still", 1, 1, muon + micro4 + no_saves + Words{"--learning_rate", "0", "--warmup_steps", "0"});
  train_on("moved", 1, 1, muon + micro4 + no_saves + Words{"--warmup_steps", "0", "--weight_decay", "0"});
  auto before = weights("still"), after = weights("moved");
  const auto spread = [&](const std::string& name) {
    const at::Tensor values = at::linalg_svdvals((after.at(name) - before.at(name)).to(at::kDouble));
    return (values.max() / values.median()).item<double>();
  };
  EXPECT_LT(spread("transformer.h.0.mlp.c_fc.weight"), 1.7);
  EXPECT_GT(spread("transformer.wte.weight"), 3);
}

TEST_F(TrainRates, embeddings_have_a_rate_of_their_own) {
  const Words schedule = {"--lr_scheduler_type", "cosine_with_min_lr", "--lr_scheduler_kwargs", "min_lr=1e-3"};
  train_on("still", 1, 1,
           micro4 + no_saves + Words{"--learning_rate", "0", "--warmup_steps", "0", "--lr_scheduler_type", "linear"});
  train_on("frozen", 1, 4, micro4 + no_saves + schedule + Words{"--decoupled_lr", "0"});
  const auto begin = weights("still"), frozen = weights("frozen");
  EXPECT_TRUE(at::equal(begin.at("transformer.wte.weight"), frozen.at("transformer.wte.weight")));
  for (const char* name : {"transformer.wpe.weight", "transformer.h.1.mlp.c_fc.weight"})
    EXPECT_FALSE(at::equal(begin.at(name), frozen.at(name))) << name;

  const Words own = schedule + Words{"--decoupled_lr", "2e-2", "--decoupled_min_lr", "1e-2"};
  train_on("one", 1, 6, own + micro4 + no_saves);
  train_on("zero2", 2, 6, own + micro2 + Words{"--zero_stage", "2", "--save_steps", "3"});
  train_on("full4", 4, 6, own + no_saves + Words{"--fsdp", "full_shard auto_wrap"});
  const auto losses = column("one", "loss");
  for (const char* name : {"zero2", "full4"}) expect_same_losses(name, losses);
  train_on("resumed", 1, 6, own + micro4 + no_saves + Words{"--resume_from_checkpoint", path("zero2/checkpoint-3")});
  expect_same_losses("resumed", {losses.begin() + 3, losses.end()});
  // Both the minimum and the peak rate have an effect; the logged rate applies to all other parameters.
  train_on("same least", 1, 6, schedule + micro4 + no_saves + Words{"--decoupled_lr", "2e-2"});
  train_on("one rate", 1, 6, schedule + micro4 + no_saves);
  EXPECT_NE(column("same least", "loss"), losses);
  EXPECT_NE(column("same least", "loss"), column("one rate", "loss"));
  EXPECT_EQ(column("one", "learning_rate"), column("one rate", "learning_rate"));
}

TEST_F(TrainRates, mup_is_the_same_however_the_model_is_divided) {
  const Words mup = {"--config_name",
                     "llama-tiny",
                     "--config_overrides",
                     "num_hidden_layers=2,hidden_size=64,num_attention_heads=4,num_key_value_heads=2,head_dim=16,"
                     "intermediate_size=96,vocab_size=257,max_position_embeddings=16",
                     "--use_mup",
                     "--mup_base_hidden_size",
                     "16",
                     "--mup_embedding_mult",
                     "2"};
  train_on("one", 1, 6, mup + micro4 + no_saves);
  train_on("tp2", 2, 6, mup + micro4 + no_saves + Words{"--tp_size", "2"});
  train_on("pp2", 2, 6, mup + micro4 + no_saves + Words{"--pp_size", "2"});
  train_on("zero1", 2, 6, mup + micro2 + Words{"--zero_stage", "1", "--save_steps", "3"});
  train_on("full4", 4, 6, mup + no_saves + Words{"--fsdp", "full_shard auto_wrap"});
  const auto losses = column("one", "loss");
  for (const char* name : {"tp2", "pp2", "zero1", "full4"}) expect_same_losses(name, losses);
  train_on(
      "resumed", 4, 6,
      mup + no_saves + Words{"--fsdp", "full_shard auto_wrap", "--resume_from_checkpoint", path("zero1/checkpoint-3")});
  expect_same_losses("resumed", {losses.begin() + 3, losses.end()});

  // The config.json written by such a run determines the learning rates of later runs.
  const auto go_on = [&](const std::string& output) {
    const Words from = {"--model_name_or_path", path("zero1"), "--warmup_steps", "0"};
    train_on(output, 1, 2, from + micro4 + no_saves);
    return column(output, "loss");
  };
  const auto with = go_on("with");
  const std::string file = path("zero1/config.json");
  Value json = parse_json(read_file(file), file);
  ASSERT_TRUE(json.at("use_mup").as_bool());
  json.set("mup_output_mult", Value::of(0.25));  // the value it already has: only the rates change
  json.set("mup_base_hidden_size", Value::of(64));
  write_file_atomically(file, dump_json(json));
  const auto without = go_on("without");
  EXPECT_NEAR(with[0], without[0], 1e-5);
  EXPECT_GT(std::abs(with[1] - without[1]), 1e-4);
}

TEST_F(TrainRates, a_batch_grows_by_a_list) {
  const Words list = {"--batch_size_schedule", "0:4 12:8 28:12"};
  train_on("one", 1, 8, list + no_saves + Words{"--per_device_train_batch_size", "12"});
  train_on("two", 2, 8, list + micro2 + no_saves + Words{"--per_device_train_batch_size", "3"});
  EXPECT_EQ(column("one", "rows"), (std::vector<double>{4, 4, 4, 8, 8, 12, 12, 12}));
  EXPECT_EQ(column("two", "rows"), column("one", "rows"));
  expect_same_losses("two", column("one", "loss"));
}

TEST_F(TrainRates, a_run_ends_by_the_clock_and_goes_on) {
  const Words common = micro2 + Words{"--save_steps", "1000000"};
  train_on("out", 2, 1'000'000, common + Words{"--exit_duration_in_mins", "0.02"}, ExitCode::stopped);
  const auto done = static_cast<std::int64_t>(column("out", "loss").size());
  ASSERT_GE(done, 1);
  EXPECT_TRUE(is_directory(path(concat("out/checkpoint-", done))));
  // It makes at least one step of progress, however short the time is.
  train_on("out", 2, 1'000'000,
           common + Words{"--exit_duration_in_mins", "0.000001", "--resume_from_checkpoint", "last"},
           ExitCode::stopped);
  EXPECT_TRUE(is_directory(path(concat("out/checkpoint-", done + 1))));
  train_on("out", 2, done + 3, common + Words{"--exit_duration_in_mins", "100", "--resume_from_checkpoint", "last"});
  EXPECT_EQ(column("out", "loss").size(), static_cast<std::size_t>(done + 3));
}

}  // namespace
}  // namespace tessera::testing
