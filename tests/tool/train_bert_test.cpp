// `tessera train` with BERT: masked language modelling and classification, alone and divided over processes.

#include "program.h"

#include <tests/paths.h>
#include <algorithm>

namespace tessera::testing {
namespace {

const std::string model = source_path("tests/fixtures/bert_tiny");

class TrainBertTest : public ToolTest {
 protected:
  TrainBertTest() {
    std::string text, labelled;
    for (int i = 0; i < 120; ++i) {
      text += concat("and god said let the earth bring forth grass number ", i % 9, " and it was so.\n");
      labelled += concat("{\"text\": \"the ", i % 2 == 0 ? "light of heaven" : "face of the deep water", " ", i % 5,
                         "\", \"label\": \"", i % 2 == 0 ? "light" : "dark", "\"}\n");
    }
    write_file_atomically(at("verses.txt"), text);
    write_file_atomically(at("labelled.jsonl"), labelled);
  }

  Strings run(const std::string& output, const std::string& file, const Strings& more = {}) const {
    return Strings{"train", "--model_name_or_path", model,     "--train_file",        at(file),   "--block_size",
                   "32",    "--learning_rate",      "1e-2",    "--lr_scheduler_type", "constant", "--logging_steps",
                   "1",     "--output_dir",         at(output)} +
           more;
  }

  void expect_same_losses(const std::string& a, const std::string& b) const {
    const auto one = curve(a), other = curve(b);
    ASSERT_EQ(one.size(), other.size());
    ASSERT_GT(one.size(), 3u);
    for (const auto& [step, loss] : one)
      EXPECT_NEAR(other.at(step), loss, 1e-5 * std::max(loss, 1.0)) << b << " step " << step;
  }
};

TEST_F(TrainBertTest, MasksAndLearnsWithEveryStrategy) {
  const auto alone = tessera(run("alone", "verses.txt", batch(8, 1, 25) + Strings{"--mlm_probability", "0.3"}));
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  const auto losses = curve("alone");
  EXPECT_LT(losses.rbegin()->second, 0.6 * losses.begin()->second);
  for (const std::string strategy : {"no_shard", "shard_grad_op", "full_shard"}) {
    const auto shared = tessera(
        run(strategy, "verses.txt",
            batch(4, 1, 25) + Strings{"--mlm_probability", "0.3", "--num_processes", "2", "--fsdp",
                                      strategy + " auto_wrap", "--fsdp_transformer_layer_cls_to_wrap", "BertLayer"}));
    ASSERT_EQ(shared.exit_code, 0) << shared.err;
    expect_same_losses("alone", strategy);
  }
  // what was trained is a Hugging Face folder that goes on
  const Value config = read_json(at("full_shard/config.json"));
  EXPECT_EQ(config.at("architectures").items()[0].as_string(), "BertForMaskedLM");
  auto again = run("again", "verses.txt", batch(8, 1, 2) + Strings{"--mlm_probability", "0.3"});
  again[2] = at("full_shard");
  const auto continued = tessera(again);
  ASSERT_EQ(continued.exit_code, 0) << continued.err;
  EXPECT_LT(curve("again").begin()->second, 0.7 * losses.begin()->second);
  const auto vectors =
      tessera({"embed", "--model", at("full_shard"), "--input", at("verses.txt"), "--output", at("v.npy")});
  EXPECT_EQ(vectors.exit_code, 0) << vectors.err;
}

// Masks depend on rows, not on ranks: every stage of ZeRO, bf16 and LoRA give the losses of one process.
TEST_F(TrainBertTest, MasksAlikeWithZeroBf16AndLora) {
  struct Way {
    std::string name;
    Strings alone, shared;
    double tolerance;
  };
  const Strings mlm = {"--mlm_probability", "0.3", "--save_strategy", "no"};
  const Strings lora = {"--lora_r", "4", "--lora_dropout", "0"};
  const std::vector<Way> ways = {{"zero1", {}, {"--zero_stage", "1"}, 1e-5},
                                 {"zero2", {}, {"--zero_stage", "2"}, 1e-5},
                                 {"zero3", {}, {"--zero_stage", "3"}, 1e-5},
                                 {"bf16", {"--bf16"}, {"--bf16", "--zero_stage", "2"}, 1e-2},
                                 {"lora", lora, lora + Strings{"--zero_stage", "3"}, 1e-5}};
  for (const Way& way : ways) {
    const std::string one = way.alone.empty() ? "whole" : way.name + "-alone", two = way.name + "-shared";
    if (!path_exists(at(one))) {
      const auto alone = tessera(run(one, "verses.txt", batch(8, 1, 6) + mlm + way.alone));
      ASSERT_EQ(alone.exit_code, 0) << way.name << alone.err;
    }
    const auto shared =
        tessera(run(two, "verses.txt", batch(4, 1, 6) + mlm + Strings{"--num_processes", "2"} + way.shared));
    ASSERT_EQ(shared.exit_code, 0) << way.name << shared.err;
    const auto expected = curve(one), came = curve(two);
    ASSERT_EQ(came.size(), 6u) << way.name;
    for (const auto& [step, loss] : expected)
      EXPECT_NEAR(came.at(step), loss, way.tolerance * std::max(loss, 1.0)) << way.name << " step " << step;
    if (way.name != "lora") {
      EXPECT_LT(came.at(6), came.at(1)) << way.name;
    }
  }
  EXPECT_NEAR(curve("lora-shared").at(1), curve("whole").at(1), 1e-5) << "adapters begin as nothing";
  EXPECT_TRUE(path_exists(at("lora-shared/adapter_config.json")));
}

TEST_F(TrainBertTest, ClassifiesLabelledTexts) {
  const Strings common = {"--eval_strategy", "steps", "--eval_steps", "30"};
  const auto alone = tessera(run("alone", "labelled.jsonl", batch(8, 1, 30) + common));
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_LT(curve("alone").rbegin()->second, 0.3);
  const Value config = read_json(at("alone/config.json"));
  EXPECT_EQ(config.at("architectures").items()[0].as_string(), "BertForSequenceClassification");
  EXPECT_EQ(config.at("label2id").at("light").as_int(), 1);
  EXPECT_TRUE(contains(alone.err, "newly initialised")) << alone.err;
  const auto shared = tessera(run("shared", "labelled.jsonl",
                                  batch(4, 1, 30) + common + Strings{"--num_processes", "2", "--fsdp", "full_shard"}));
  ASSERT_EQ(shared.exit_code, 0) << shared.err;
  expect_same_losses("alone", "shared");
}

TEST_F(TrainBertTest, RefusesWhatDoesNotFit) {
  const auto refused = [&](const Strings& arguments, const std::string& part) {
    const auto result = tessera(arguments);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_TRUE(contains(result.err, part)) << result.err;
    EXPECT_FALSE(path_exists(at("no")));
  };
  refused(run("no", "verses.txt", {"--max_steps", "1", "--tokenizer_name", "byte"}),
          "BERT needs its WordPiece tokenizer");
  refused(run("no", "verses.txt", {"--max_steps", "1", "--mlm_probability", "1.5"}), "mlm_probability");
  refused({"generate", "--model_name_or_path", model, "--prompt", "a"}, "does not continue texts");
}

}  // namespace
}  // namespace tessera::testing
