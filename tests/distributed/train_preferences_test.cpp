// Preference pairs in whole runs: every way to split the pairs of a step trains the same model, a resumed run equals
// the uninterrupted one, adapters and other reference models give the expected results, and the model learns.

#include "mesh_jobs.h"

#include <cmath>

namespace tessera::testing {
namespace {

class TrainPreferences : public TrainMesh {
 protected:
  TrainPreferences() {
    std::string pairs;
    for (int i = 0; i < 9; ++i)
      pairs += concat("{\"prompt\": \"", std::string(static_cast<std::size_t>(1 + i % 3), 'q'), i,
                      "\", \"chosen\": \"yes", std::string(static_cast<std::size_t>(i % 4), '!'),
                      "\", \"rejected\": \"", i % 2 ? "no" : "never", "\"}\n");
    write_file_atomically(path("pairs.jsonl"), pairs);
  }

  // A gradient that is 0 except for rounding (key biases) would make AdamW take arbitrary steps; the epsilon used here
  // is larger than such gradients.
  RunConfig pairs(const std::string& output, int pairs_of_a_step, int ranks, const Words& more) const {
    const bool named = !more.empty() && more[0] == "--model_name_or_path";
    return config(
        output, last_step,
        (named ? Words{more[0], more[1]} : Words{}) +
            Words{"--train_file", path("pairs.jsonl"), "--preference_loss", "sigmoid", "--preference_beta", "0.5",
                  "--per_device_train_batch_size", concat(pairs_of_a_step / ranks), "--adam_epsilon", "1e-5"} +
            more);
  }
  void train(const std::string& output, int ranks, const Words& more) const {
    train_run(pairs(output, 4, ranks, more), ranks);
  }

  std::vector<double> all(const std::string& output, const char* key) const {
    std::vector<double> numbers;
    const std::string metrics = path_join(path(output), "metrics.jsonl");
    for (const std::string& line : split(read_file(metrics), '\n')) {
      if (line.empty()) continue;
      const Value value = parse_json(line, metrics);
      if (const Value* number = value.find(key); number != nullptr && value.find("event") == nullptr)
        numbers.push_back(number->as_real());
    }
    return numbers;
  }
  static constexpr const char* figures[] = {
      "loss", "grad_norm", "rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins"};
  void expect_same_figures(const std::string& output, const std::string& wanted, double bound) const {
    for (const char* key : figures) {
      const auto got = all(output, key), expected = all(wanted, key);
      ASSERT_EQ(got.size(), static_cast<std::size_t>(last_step)) << output << " " << key;
      ASSERT_EQ(expected.size(), got.size()) << wanted << " " << key;
      for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_NEAR(got[i], expected[i], bound * std::max(1.0, std::abs(expected[i]))) << output << " " << key << i;
    }
  }
  void make_model() const { train_run(config("base", 1, {"--save_strategy", "no", "--warmup_steps", "0"}), 1); }
};

TEST_F(TrainPreferences, EveryCutTrainsTheModelOfOneProcess) {
  train("one", 1, {});
  train("accumulated", 1, {"--per_device_train_batch_size", "1", "--gradient_accumulation_steps", "4"});
  train("ddp", 2, {"--per_device_train_batch_size", "1", "--gradient_accumulation_steps", "2"});
  train("zero", 2, {"--zero_stage", "2"});
  train("fsdp", 2, {"--fsdp", "full_shard auto_wrap"});
  for (const char* output : {"accumulated", "ddp", "zero", "fsdp"}) {
    expect_same_figures(output, "one", 2e-5);
    expect_same_model(output, "one", output);
  }
}

TEST_F(TrainPreferences, LossesWithoutReferenceToo) {
  const Words simpo = {"--preference_loss", "simpo", "--preference_beta", "2", "--preference_gamma", "0.3"};
  train("one", 1, simpo);
  train("fsdp", 2, simpo + Words{"--fsdp", "full_shard auto_wrap"});
  expect_same_figures("fsdp", "one", 2e-5);
}

TEST_F(TrainPreferences, AResumedRunIsTheUninterruptedOne) {
  for (const auto& [name, flags] : {std::pair{"ddp", Words{}}, std::pair{"fsdp", Words{"--fsdp", "full_shard"}}}) {
    const std::string whole = concat(name, "_whole");
    train(whole, 2, flags + Words{"--save_steps", concat(saved_at)});
    train(name, 2, flags + Words{"--resume_from_checkpoint", path(concat(whole, "/checkpoint-", saved_at))});
    for (const char* key : figures) {
      std::vector<double> expected = all(whole, key);
      expected.erase(expected.begin(), expected.begin() + saved_at);
      EXPECT_EQ(all(name, key), expected) << name << " " << key;
    }
    expect_same_model(name, whole, name, "", /*exactly=*/true);
  }
}

TEST_F(TrainPreferences, AdaptersAreComparedWithTheirBase) {
  make_model();
  const Words lora = {"--model_name_or_path", path("base"), "--lora_r", "4", "--learning_rate", "3e-2"};
  train("one", 1, lora + Words{"--save_steps", concat(saved_at)});
  train("ddp", 2, lora);
  expect_same_figures("ddp", "one", 2e-4);
  train("resumed", 1, lora + Words{"--resume_from_checkpoint", path(concat("one/checkpoint-", saved_at))});
  std::vector<double> expected = all("one", "rewards/chosen");
  ASSERT_EQ(expected.size(), static_cast<std::size_t>(last_step));
  expected.erase(expected.begin(), expected.begin() + saved_at);
  EXPECT_EQ(all("resumed", "rewards/chosen"), expected);
}

TEST_F(TrainPreferences, AnotherReferenceIsAnotherLoss) {
  make_model();
  const Words start = {"--model_name_or_path", path("base")};
  train("one", 1, start);
  train("same", 1, start + Words{"--ref_model_name_or_path", path("base")});
  expect_same_figures("same", "one", 1e-6);
  train_run(config("other", 3, {"--save_strategy", "no", "--learning_rate", "0.03"}), 1);
  train("another", 1, start + Words{"--ref_model_name_or_path", path("other")});
  EXPECT_NE(all("another", "loss"), all("one", "loss"));
}

TEST_F(TrainPreferences, EvaluationsHaveLossAndRewards) {
  // 9 pairs in batches of 2: one batch is smaller, and one rank has one fewer than the other.
  const Words evaluate = {"--validation_file",
                          path("pairs.jsonl"),
                          "--eval_strategy",
                          "steps",
                          "--eval_steps",
                          "1",
                          "--eval_on_start",
                          "--per_device_eval_batch_size",
                          "2"};
  train("one", 1, evaluate);
  train("fsdp", 2, evaluate + Words{"--fsdp", "full_shard auto_wrap"});
  const auto evaluations = [&](const std::string& output, const char* key) {
    std::vector<double> numbers;
    for (const std::string& line : split(read_file(path_join(path(output), "metrics.jsonl")), '\n'))
      if (line.find("\"event\":\"eval\"") != std::string::npos || line.find("\"event\": \"eval\"") != std::string::npos)
        numbers.push_back(parse_json(line, output).at(key).as_real());
    return numbers;
  };
  for (const char* key : {"eval_loss", "eval_rewards/chosen", "eval_rewards/margins", "eval_rewards/accuracies",
                          "eval_logps/chosen", "eval_logps/rejected"}) {
    const auto one = evaluations("one", key), fsdp = evaluations("fsdp", key);
    ASSERT_EQ(one.size(), static_cast<std::size_t>(last_step) + 1) << key;
    ASSERT_EQ(fsdp.size(), one.size()) << key;
    for (std::size_t i = 0; i < one.size(); ++i)
      EXPECT_NEAR(fsdp[i], one[i], 2e-5 * std::max(1.0, std::abs(one[i]))) << key << i;
  }
  EXPECT_NEAR(evaluations("one", "eval_loss").front(), std::log(2.0), 1e-6) << "the model is its own reference";
  EXPECT_NE(evaluations("one", "eval_loss").back(), evaluations("one", "eval_loss").front());
}

// As in TRL's DPOTrainer by default: the results equal those without dropout bit for bit, and differ from those with
// dropout.
TEST_F(TrainPreferences, DropoutIsSwitchedOff) {
  const auto of_model = [&](const std::string& output, const char* p, const Words& more) {
    RunConfig run = pairs(output, 4, 1, more);
    run.model.config_overrides = concat("n_layer=1,n_embd=20,n_head=2,vocab_size=257,n_positions=16,resid_pdrop=", p,
                                        ",embd_pdrop=", p, ",attn_pdrop=", p);
    train_run(run, 1);
    return all(output, "loss");
  };
  const auto none = of_model("none", "0", {});
  ASSERT_EQ(none.size(), static_cast<std::size_t>(last_step));
  EXPECT_EQ(of_model("off", "0.3", {"--disable_dropout"}), none);
  EXPECT_NE(of_model("on", "0.3", {}), none);

  make_model();
  const auto of_adapters = [&](const std::string& output, const char* p, const Words& more) {
    train(output, 1,
          Words{"--model_name_or_path", path("base"), "--lora_r", "4", "--learning_rate", "3e-2", "--lora_dropout", p} +
              more);
    return all(output, "loss");
  };
  const auto whole = of_adapters("whole", "0", {"--disable_dropout"});
  EXPECT_EQ(of_adapters("adapters_off", "0.3", {"--disable_dropout"}), whole);
  EXPECT_NE(of_adapters("adapters_on", "0.3", {}), whole);
}

TEST_F(TrainPreferences, LearnsWhatIsPreferred) {
  RunConfig run = pairs("out", 9, 1, {"--warmup_steps", "0", "--learning_rate", "1e-2", "--max_steps", "25"});
  run.model.config_overrides =
      "n_layer=2,n_embd=20,n_head=2,vocab_size=257,n_positions=16,bos_token_id=256,"
      "eos_token_id=256,resid_pdrop=0,embd_pdrop=0,attn_pdrop=0";
  train_run(run, 1);
  const auto loss = all("out", "loss"), right = all("out", "rewards/accuracies"),
             margin = all("out", "rewards/margins");
  ASSERT_EQ(loss.size(), 25u);
  EXPECT_NEAR(loss.front(), std::log(2.0), 1e-5) << "the model is its own reference";
  EXPECT_NEAR(margin.front(), 0, 1e-4);
  EXPECT_LT(loss.back(), 0.1);
  EXPECT_EQ(right.back(), 1);
  EXPECT_GT(margin.back(), 2);
}

}  // namespace
}  // namespace tessera::testing
