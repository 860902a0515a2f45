// The kinds of data that each model accepts.

#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/config/core/run_config.h>
#include <tessera/models/load.h>
#include <tessera/train/loop/task.h>

#include <tests/error_of.h>
#include <tests/paths.h>

namespace tessera::train {
namespace {

using tessera::testing::error_of;

TEST(Task, FillInMiddleIsForModelsThatContinueTexts) {
  RunConfig config;
  config.model.config_name = tessera::testing::source_path("tests/fixtures/bert_tiny");
  config.data.fim_data = true;
  const auto model = models::load_language_model(config.model, 1);
  const std::string error = error_of(
      [&] { open_task_datasets(config, *model, text::load_tokenizer("byte"), 16, /*want_validation=*/false, {}); });
  EXPECT_EQ(
      error,
      "--fim_data rearranges texts for models that continue them, but this model already reads both sides: remove it");
}

TEST(Task, FillInMiddleNeedsTheTokensOfIt) {
  const TemporaryFolder folder;
  RunConfig config;
  config.model.config_name = "gpt2-tiny";
  config.model.config_overrides = "n_layer=1,n_embd=16,n_head=2,vocab_size=257,n_positions=16";
  config.data.train_file = path_join(folder.path(), "a.txt");
  config.data.fim_data = true;
  write_file_atomically(config.data.train_file, std::string(100, 'a'));
  const auto model = models::load_language_model(config.model, 1);
  const std::string error = error_of(
      [&] { open_task_datasets(config, *model, text::load_tokenizer("byte"), 16, /*want_validation=*/false, {}); });
  EXPECT_TRUE(error.starts_with("--fim_prefix_token <fim_prefix>: the tokenizer (257 tokens) has no such token"))
      << error;
}

TEST(Task, DropoutOfTheConfigurationComesBack) {
  for (const char* text :
       {R"({"model_type": "gpt2", "resid_pdrop": 0.3, "n_layer": 2})", R"({"model_type": "opt"})",
        R"({"model_type": "llava", "text_config": {"model_type": "llama", "attention_dropout": 0.2}})"}) {
    const Value before = parse_json(text, "config");
    EXPECT_EQ(dump_json(with_dropout_of(without_dropout(before), before)), dump_json(before));
  }
  const Value llama = parse_json(R"({"model_type": "llama", "attention_dropout": 0.2})", "config");
  const Value composed = parse_json(R"({"model_type": "llava", "text_config": {"attention_dropout": 0.0}})", "config");
  EXPECT_EQ(with_dropout_of(composed, llama).at("text_config").at("attention_dropout").as_real(), 0.2);
}

TEST(Task, WithoutDropoutEveryFamilyHasNone) {
  const Value gpt2 = without_dropout(parse_json(R"({"model_type": "gpt2", "resid_pdrop": 0.3})", "gpt2"));
  for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) EXPECT_EQ(gpt2.at(key).as_real(), 0) << key;
  const Value opt = without_dropout(parse_json(R"({"model_type": "opt"})", "opt"));
  EXPECT_EQ(opt.at("dropout").as_real(), 0) << "whose own is 0.1";
  const Value llava = without_dropout(parse_json(
      R"({"model_type": "llava", "text_config": {"model_type": "llama", "attention_dropout": 0.2}})", "llava"));
  EXPECT_EQ(llava.at("text_config").at("attention_dropout").as_real(), 0);
  EXPECT_EQ(llava.find("attention_dropout"), nullptr);
}

}  // namespace
}  // namespace tessera::train
