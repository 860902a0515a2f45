#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/train/reporting/model_card.h>

namespace tessera::train {
namespace {

CardFacts facts() {
  CardFacts facts;
  facts.name = "small: one";
  facts.model = "gpt2, 1.2 M parameters";
  facts.pipeline_tag = "text-generation";
  facts.facts = {"data: 12 blocks"};
  facts.hardware = {"a processor"};
  facts.settings = {{"learning_rate", "0.01"}};
  facts.totals.steps = 4;
  facts.totals.steps_here = 3;
  facts.totals.seconds = 61;
  facts.totals.tokens = 1000;
  const auto entry = [](const char* name, double value, int step) {
    return Value::make_object({{name, Value::of(value)}, {"epoch", Value::of(0.5 * step)}, {"step", Value::of(step)}});
  };
  facts.history = {entry("loss", 5, 1), entry("loss", 4, 2), entry("eval_loss", 3, 2), entry("loss", 2.5, 4),
                   entry("eval_loss", 2, 4)};
  return facts;
}

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(ModelCard, SaysWhatWasMeasured) {
  const std::string card = model_card(facts());
  const Value head = front_matter(card);
  EXPECT_EQ(head.at("library_name").as_string(), "transformers");
  EXPECT_EQ(head.at("pipeline_tag").as_string(), "text-generation");
  EXPECT_EQ(head.at("metrics").items()[0].as_string(), "perplexity");
  for (const char* unknown : {"base_model", "license", "language", "datasets"})
    EXPECT_EQ(head.find(unknown), nullptr) << unknown << " is unknown, so it is omitted";
  EXPECT_TRUE(says(card, "# small: one\n\ngpt2, 1.2 M parameters; trained from scratch with Tessera.")) << card;
  EXPECT_TRUE(says(card, "after step 4: loss 2.0000, perplexity 7.39.")) << card;
  EXPECT_TRUE(says(card, "| 2 | 1 | 4 | 3 |\n| 4 | 2 | 2.5 | 2 |\n")) << card;
  EXPECT_TRUE(says(card, "1:01 for 3 steps (the 1 before them ran in earlier processes), 1.0 k tokens")) << card;
  EXPECT_TRUE(says(card, "```yaml\nlearning_rate: 0.01\n```\n")) << card;

  CardFacts quiet = facts();
  quiet.history = {quiet.history[0]};
  const std::string without = model_card(quiet);
  EXPECT_FALSE(front_matter(without).contains("metrics"));
  EXPECT_FALSE(says(without, "perplexity"));
  EXPECT_TRUE(says(without, "| Step | Epoch | Training loss |\n|---|---|---|\n| 1 | 0.5 | 5 |\n")) << without;
}

TEST(ModelCard, PairsOfAnswersHaveNoPerplexity) {
  CardFacts pairs = facts();
  for (Value& entry : pairs.history)
    if (entry.find("eval_loss") != nullptr) entry.set("eval_rewards/chosen", Value::of(0.1));
  const std::string card = model_card(pairs);
  EXPECT_FALSE(front_matter(card).contains("metrics"));
  EXPECT_TRUE(says(card, "after step 4: loss 2.0000.")) << card;
  EXPECT_FALSE(says(card, "perplexity")) << card;
}

TEST(ModelCard, WhatTheBaseModelPassesOn) {
  CardFacts derived = facts();
  derived.base_folder = "/models/base";
  derived.base_model = "org/base-1B";
  derived.adapters = true;
  derived.datasets = {"org/data"};
  derived.base_card =
      front_matter("---\nlicense: apache-2.0\nlanguage:\n- en\n- no\ntags: [x]\npipeline_tag: other\n---\n# Base\n");
  const std::string card = model_card(derived);
  const Value head = front_matter(card);
  EXPECT_EQ(head.at("license").as_string(), "apache-2.0");
  EXPECT_EQ(head.at("language").items()[1].as_string(), "no");
  EXPECT_TRUE(says(card, "- \"no\"\n")) << "older YAML readers take no for a boolean: " << card;
  EXPECT_EQ(head.at("base_model").as_string(), "org/base-1B");
  EXPECT_EQ(head.at("base_model_relation").as_string(), "adapter");
  EXPECT_EQ(head.at("library_name").as_string(), "peft");
  EXPECT_EQ(head.at("datasets").items()[0].as_string(), "org/data");
  EXPECT_EQ(head.at("pipeline_tag").as_string(), "text-generation") << "of this model, not the base's";
  EXPECT_TRUE(says(card, "LoRA adapters for [org/base-1B](https://huggingface.co/org/base-1B)")) << card;
}

TEST(ModelCard, NamesOnTheHub) {
  EXPECT_EQ(hub_name("/c/hub/models--org--a-b/snapshots/0f", "models"), "org/a-b");
  EXPECT_EQ(hub_name("/c/hub/models--gpt2/snapshots/0f", "models"), "gpt2");
  EXPECT_EQ(hub_name("/c/hub/datasets--org--text/x.jsonl", "datasets"), "org/text");
  EXPECT_EQ(hub_name("/home/me/gpt2", "models"), "");
}

TEST(ModelCard, FrontMatterOfOthers) {
  EXPECT_TRUE(front_matter("# A heading\n---\n").members().empty());
  EXPECT_TRUE(front_matter("---\nno end").members().empty());
  EXPECT_TRUE(front_matter("---\n: [\n---\n").members().empty());
  EXPECT_TRUE(front_matter("").members().empty());
}

TEST(ModelCard, APersonsStays) {
  const TemporaryFolder folder;
  const std::string path = path_join(folder.path(), "README.md"), card = model_card(facts());
  EXPECT_TRUE(is_own_card(card));
  EXPECT_TRUE(write_model_card(folder.path(), card));
  EXPECT_EQ(read_file(path), card);
  CardFacts other = facts();
  other.name = "another";
  EXPECT_TRUE(write_model_card(folder.path(), model_card(other))) << "ours is replaced";
  write_file_atomically(path, read_file(path) + "More by hand.\n");
  EXPECT_FALSE(write_model_card(folder.path(), card));
  EXPECT_TRUE(says(read_file(path), "More by hand."));
  write_file_atomically(path, "# Mine\n");
  EXPECT_FALSE(write_model_card(folder.path(), card));
  EXPECT_EQ(read_file(path), "# Mine\n");
}

}  // namespace
}  // namespace tessera::train
