// `tessera train` with BERT: masked language modelling and classification, on one and on several processes.

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
  // the result is a Hugging Face folder that can be trained further
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

// Masks depend on rows, not on ranks: every ZeRO stage, bf16 and LoRA give the losses of one process.
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
  const auto evaluation = [&](const std::string& output) {
    for (const Value& line : metrics(output))
      if (const Value* event = line.find("event"); event != nullptr && event->as_string() == "eval") return line;
    return Value();
  };
  EXPECT_GT(evaluation("alone").at("eval_accuracy").as_real(), 0.9);
  EXPECT_GT(evaluation("alone").at("eval_f1").as_real(), 0.9);
  for (const char* of_texts : {"perplexity", "eval_tokens"}) EXPECT_FALSE(evaluation("alone").contains(of_texts));
  EXPECT_FALSE(end_line("alone").contains("perplexity"));
  const auto shared = tessera(run("shared", "labelled.jsonl",
                                  batch(4, 1, 30) + common + Strings{"--num_processes", "2", "--fsdp", "full_shard"}));
  ASSERT_EQ(shared.exit_code, 0) << shared.err;
  expect_same_losses("alone", "shared");
  EXPECT_EQ(evaluation("shared").at("eval_accuracy").as_real(), evaluation("alone").at("eval_accuracy").as_real());
}

TEST_F(TrainBertTest, TheMostAccurateModelIsTheBest) {
  // Two classes, which steps of rate 0 never learn to distinguish, on two processes and two stages.
  std::string rows;
  for (int i = 0; i < 7; ++i) rows += concat("{\"text\": \"and god said ", i, "\", \"label\": ", i < 4 ? 0 : 1, "}\n");
  write_file_atomically(at("rows.jsonl"), rows);
  const Strings common = {"--validation_file",
                          at("rows.jsonl"),
                          "--eval_strategy",
                          "steps",
                          "--eval_steps",
                          "1",
                          "--metric_for_best_model",
                          "accuracy",
                          "--load_best_model_at_end",
                          "--save_strategy",
                          "steps",
                          "--save_steps",
                          "1",
                          "--per_device_eval_batch_size",
                          "2",
                          "--max_steps",
                          "2"};
  const auto state = [&](const std::string& output) {
    return read_json(at(output + "/checkpoint-2/trainer_state.json"));
  };
  double one = -1;
  for (const auto& [output, more] :
       {std::pair("one", Strings{"--per_device_train_batch_size", "4"}),
        std::pair("two", Strings{"--per_device_train_batch_size", "2", "--num_processes", "2"}),
        std::pair("stages", Strings{"--per_device_train_batch_size", "2", "--num_processes", "2", "--pp_size", "2",
                                    "--gradient_accumulation_steps", "2"})}) {
    const auto run = tessera(this->run(output, "rows.jsonl", common + more));
    ASSERT_EQ(run.exit_code, 0) << run.err;
    const double best = state(output).at("best_metric").as_real();
    double highest = 0;
    for (const Value& line : metrics(output))
      if (const Value* accuracy = line.find("eval_accuracy")) highest = std::max(highest, accuracy->as_real());
    EXPECT_NEAR(best, highest, 1e-8) << "greater is better";
    EXPECT_GE(best, 3 / 7.0 - 1e-9);
    if (one < 0) one = best;
    EXPECT_EQ(best, one) << output;
  }
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
  refused(run("no", "verses.txt",
              {"--max_steps", "1", "--eval_strategy", "epoch", "--save_strategy", "best", "--metric_for_best_model",
               "accuracy"}),
          "is a language model, has loss and perplexity");
  refused(run("no", "labelled.jsonl",
              {"--max_steps", "1", "--eval_strategy", "epoch", "--save_strategy", "best", "--metric_for_best_model",
               "eval_perplexity"}),
          "is a classifier, has loss, accuracy and f1");
  refused(run("no", "verses.txt", {"--max_steps", "1", "--mlm_probability", "1.5"}), "mlm_probability");
  refused({"generate", "--model_name_or_path", model, "--prompt", "a"}, "is not a causal language model");
}

}  // namespace
}  // namespace tessera::testing
