// The modules of a model that are rounded in training, each from its own step on.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/config/sections/model_config.h>
#include <tessera/models/load.h>
#include <tessera/train/features/compression.h>
#include <tests/error_of.h>
#include <tests/paths.h>

#include <functional>
#include <set>

namespace tessera::train {
namespace {

using tessera::testing::error_of;
using Names = std::set<std::string>;

std::shared_ptr<models::LanguageModel> load(const std::string& name) {
  return models::load_language_folder(tessera::testing::source_path("tests/fixtures/" + name));
}

config::CompressionMethod weights_of(std::vector<std::string> modules, std::int64_t bits = 8) {
  config::CompressionMethod method;
  method.in_forward = true;
  method.groups = {{.name = "wq1", .modules = std::move(modules), .start_bits = bits, .bits = bits, .period = 1}};
  return method;
}

/// The modules whose weights, or whose inputs, are currently rounded.
Names rounded(const models::LanguageModel& model, bool inputs = false) {
  Names names;
  for (const auto& item : model.named_modules("", false)) {
    if (const auto* map = dynamic_cast<const models::Linear*>(item.value().get());
        map != nullptr && map->rounding && (inputs ? map->rounding->input : map->rounding->weight))
      names.insert(item.key());
    if (const auto* table = dynamic_cast<const models::Table*>(item.value().get());
        !inputs && table != nullptr && table->rounding && *table->rounding)
      names.insert(item.key());
  }
  return names;
}

Names found(const models::LanguageModel& model, std::vector<std::string> modules) {
  CompressionSchedule schedule(model, {.weights = weights_of(std::move(modules)), .inputs = {}, .layers = {}}, 0);
  EXPECT_EQ(rounded(model), Names{}) << "before the first step";
  schedule.set_step(0);
  return rounded(model);
}

std::string refusal(const std::string& model, const config::Compression& settings) {
  return error_of([&] { CompressionSchedule(*load(model), settings, 0); });
}

// Patterns from DeepSpeedExamples for BERT and GPT-2.
TEST(Compression, ExpressionsOccurInNamesOfModules) {
  const std::string layer = "bert.encoder.layer.0.";
  Names wanted;
  for (const std::string block : {"0", "1"}) {
    const std::string in = concat("bert.encoder.layer.", block, ".");
    for (const char* name : {"attention.self.query", "attention.self.key", "attention.self.value",
                             "attention.output.dense", "intermediate.dense", "output.dense"})
      wanted.insert(in + name);
  }
  wanted.insert("bert.embeddings.word_embeddings");
  EXPECT_EQ(found(*load("bert_tiny"), {"attention.self", "intermediate", "word_embeddings", "output.dense"}), wanted);
  EXPECT_EQ(found(*load("bert_tiny"), {"layer.\\w+.output.dense"}),
            (Names{"bert.encoder.layer.0.output.dense", "bert.encoder.layer.1.output.dense"}));
  const Names gpt2 = found(*load("gpt2_tiny"), {"attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"});
  EXPECT_TRUE(gpt2.contains("transformer.h.0.mlp.c_fc"));
  EXPECT_EQ(gpt2.size(), static_cast<std::size_t>(4 * load("gpt2_tiny")->shape().blocks));
  Names all = gpt2;
  all.insert({"transformer.wte", "transformer.wpe"});
  EXPECT_EQ(found(*load("gpt2_tiny"), {"*"}), all) << "heads are none of them";
}

TEST(Compression, WhatCannotBeRoundedIsRefused) {
  const auto weights = [](std::vector<std::string> modules) {
    return config::Compression{.weights = weights_of(std::move(modules)), .inputs = {}, .layers = {}};
  };
  const std::string at = "--compression_training: weight_quantization.different_groups.wq1.modules: ";
  EXPECT_EQ(refusal("gpt2_tiny", weights({"attention.self"})),
            at + "'attention.self' matches no module of the model: names are as in transformers, such as "
                 "transformer.h.0.attn.c_attn");
  EXPECT_EQ(refusal("gpt2_tiny", weights({"c_attn", "attn"})),
            at + "'attn' matches transformer.h.0.attn.c_attn, which 'c_attn' of wq1 also matches; each module must "
                 "match only one "
                 "expression");
  EXPECT_EQ(refusal("gpt2_tiny", weights({"lm_head"})),
            at + "'lm_head' matches lm_head, but the head over the vocabulary cannot be rounded; use a pattern that "
                 "excludes it");
  EXPECT_EQ(
      refusal("llama/mixtral", weights({"experts.0.w1"})),
      at + "'experts.0.w1' matches model.layers.0.block_sparse_moe.experts.0.w1, but experts cannot be rounded; use "
           "a pattern that excludes it");
  config::Compression settings = weights({"c_attn"});
  settings.inputs = settings.weights;
  settings.inputs->groups[0].modules = {"wte"};
  EXPECT_EQ(
      refusal("gpt2_tiny", settings),
      "--compression_training: activation_quantization.different_groups.wq1.modules: 'wte' matches transformer.wte, "
      "but an embedding has no inputs to round; use a pattern that excludes it");
  settings = weights({"c_attn"});
  settings.weights->quantize_groups = 7;
  EXPECT_NE(refusal("gpt2_tiny", settings).find("quantize_groups is 7, but the weight of transformer.h.0.attn.c_attn "),
            std::string::npos)
      << refusal("gpt2_tiny", settings);
  // In forward, an embedding's groups are its rows; otherwise it is divided like any weight.
  settings = weights({"wpe"});
  settings.weights->quantize_groups = 7;
  EXPECT_EQ(refusal("gpt2_tiny", settings), "");
  settings.weights->in_forward = false;
  EXPECT_NE(refusal("gpt2_tiny", settings), "");
}

const nn::FakeQuantization& of_weight(const models::LanguageModel& model, const std::string& name) {
  const auto modules = model.named_modules("", false);
  return *dynamic_cast<const models::Linear&>(*modules[name]).rounding->weight;
}

TEST(Compression, BitsFallAsTheScheduleSays) {
  const auto model = load("gpt2_tiny");
  const std::string name = "transformer.h.0.attn.c_attn";
  config::Compression settings;
  settings.weights = weights_of({"c_attn"}, 4);
  settings.weights->in_forward = false;
  settings.weights->schedule_offset = 3;
  settings.weights->groups[0].start_bits = 7;
  settings.weights->groups[0].period = 2;
  settings.weights->change_ratio = 0.25;
  settings.inputs = weights_of({"c_proj"}, 8);
  settings.inputs->schedule_offset = 5;
  CompressionSchedule schedule(*model, settings, 0);
  for (std::int64_t step = 0; step < 3; ++step) {
    schedule.set_step(step);
    EXPECT_EQ(rounded(*model), Names{}) << step;
  }
  // DeepSpeed's Quantizer counts calls, from 1 in the first rounded step, and drops a bit at calls 2, 4 and 8.
  const std::vector<std::pair<std::int64_t, double>> wanted = {{7, 0.75}, {6, 1},    {6, 0.75}, {5, 1},   {5, 0.75},
                                                               {5, 0.5},  {5, 0.25}, {4, 1},    {4, 0.75}};
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    schedule.set_step(3 + static_cast<std::int64_t>(i));
    EXPECT_EQ(of_weight(*model, name).bits, wanted[i].first) << i;
    EXPECT_NEAR(of_weight(*model, name).exact, wanted[i].second, 1e-12) << i;
    EXPECT_EQ(rounded(*model, true).empty(), 3 + i < 5) << i;
  }
  schedule.set_step(1000);
  EXPECT_EQ(of_weight(*model, name).bits, 4);
  EXPECT_EQ(of_weight(*model, name).exact, 0);
  EXPECT_NE(schedule.describe().find("to 7 to 4 bits from step 4 on; inputs of"), std::string::npos)
      << schedule.describe();
  // A run resumed at a step has that step's bits at once; with a period of 0 a bit is dropped in each step.
  settings.weights->groups[0].period = 0;
  const auto other = load("gpt2_tiny");
  CompressionSchedule at_once(*other, settings, 0);
  for (const auto& [step, bits] : {std::pair(3, 6), std::pair(4, 5), std::pair(5, 4), std::pair(6, 4)}) {
    at_once.set_step(step);
    EXPECT_EQ(of_weight(*other, name).bits, bits) << step;
  }
}

data::Batch batch_of(const models::LanguageModel& model) {
  data::Batch batch;
  batch.ids = at::arange(24, at::kLong).view({2, 12}) + 5;
  batch.labels = batch.ids.clone();
  batch.lengths = {12, 12};
  if (model.objective() == data::Objective::Kind::masked_token) batch.labels.slice(1, 0, 6).fill_(-100);
  return batch;
}

// A model that rounds its weights has the same loss as a model whose weights were rounded beforehand.
TEST(Compression, LossIsThatOfRoundedWeights) {
  for (const std::string name : {"gpt2_tiny", "bert_tiny", "llama/llama"}) {
    const auto model = load(name), by_hand = load(name);
    const data::Batch batch = batch_of(*model);
    const double before = model->loss(batch, 1).item<double>();
    CompressionSchedule schedule(*model, {.weights = weights_of({"*"}, 3), .inputs = {}, .layers = {}}, 0);
    schedule.set_step(0);
    {
      const at::NoGradGuard no_grad;
      const Names names = rounded(*model);
      EXPECT_GT(names.size(), 8u);
      for (const auto& item : by_hand->named_modules("", false)) {
        if (!names.contains(item.key())) continue;
        if (const auto* map = dynamic_cast<const models::Linear*>(item.value().get())) {
          const bool out_first = map->layout == nn::WeightLayout::out_in;
          const at::Tensor q = nn::rounded_to_bits(out_first ? map->weight : map->weight.t(), {.bits = 3});
          at::Tensor(map->weight).copy_(out_first ? q : q.t());
        }
      }
    }
    const double rounded_loss = model->loss(batch, 1).item<double>();
    EXPECT_GT(std::abs(rounded_loss - before), 1e-4 * std::abs(before)) << name;
    // Embeddings are rounded row by row; a head that shares the table is not.
    std::vector<std::shared_ptr<torch::nn::Module>> held;
    for (const auto& item : by_hand->named_modules("", false))
      if (auto* table = dynamic_cast<models::Table*>(item.value().get()); table && rounded(*model).contains(item.key()))
        table->rounding =
            std::make_shared<std::optional<nn::FakeQuantization>>(nn::FakeQuantization{.bits = 3, .groups = 0});
    EXPECT_NEAR(by_hand->loss(batch, 1).item<double>(), rounded_loss, 1e-5 * std::abs(rounded_loss)) << name;
    model->loss(batch, 1).backward();
    for (const auto& item : model->named_parameters())
      EXPECT_TRUE(item.value().grad().defined() && item.value().grad().isfinite().all().item<bool>()) << item.key();
  }
}

TEST(Compression, RangesOfInputsRunOn) {
  const auto model = load("gpt2_tiny");
  config::Compression settings;
  settings.inputs = weights_of({"h.0.mlp.c_fc"}, 8);
  settings.inputs->asymmetric = settings.inputs->running_range = true;
  settings.inputs->schedule_offset = 1;
  CompressionSchedule schedule(*model, settings, 0);
  ASSERT_TRUE(schedule.keeps_ranges());
  schedule.set_step(0);
  EXPECT_EQ(rounded(*model, true), Names{}) << "the step before notes only";
  const auto step = [&](float least, float most) {
    schedule.begin_step();
    const auto modules = model->named_modules("", false);
    const auto& map = dynamic_cast<const models::Linear&>(*modules["transformer.h.0.mlp.c_fc"]);
    at::Tensor x = at::zeros({1, map.weight.size(0)});
    x[0][0] = least;
    x[0][1] = most;
    nn::fake_quantized_linear(x, map.weight, {}, map.layout, *map.rounding);
    schedule.end_step();
  };
  const auto now = [&] {
    const Value ranges = schedule.ranges();
    return std::pair(ranges.items().at(0).as_real(), ranges.items().at(1).as_real());
  };
  EXPECT_TRUE(schedule.ranges().is_null());
  step(-1, 2);
  EXPECT_EQ(now(), std::pair(-1.0, 2.0));
  schedule.set_step(1);
  EXPECT_EQ(rounded(*model, true), Names{"transformer.h.0.mlp.c_fc"});
  step(-3, 4);
  EXPECT_NEAR(now().first, -1.1, 1e-6);
  EXPECT_NEAR(now().second, 2.1, 1e-6);
  // A checkpoint's range applies at once.
  const Value saved = schedule.ranges();
  const auto other = load("gpt2_tiny");
  CompressionSchedule resumed(*other, settings, 0);
  resumed.set_ranges(saved);
  resumed.set_step(2);
  EXPECT_EQ(rounded(*other, true), Names{"transformer.h.0.mlp.c_fc"});
  EXPECT_EQ(dump_json(resumed.ranges()), dump_json(saved));
  settings.inputs->groups[0].modules = {"c_fc"};
  CompressionSchedule more(*other, settings, 0);
  EXPECT_NE(error_of([&] { more.set_ranges(saved); }).find("the inputs of 1 linear maps, but this run has 2"),
            std::string::npos);
}

// The last block only, with the modules around the blocks except word embeddings.
TEST(Compression, AModelBeginsWithSomeBlocks) {
  const std::string folder = tessera::testing::source_path("tests/fixtures/gpt2_tiny");
  const auto whole = models::load_language_folder(folder);
  const std::int64_t blocks = whole->shape().blocks;
  ASSERT_GE(blocks, 2);
  const models::BlockChoice choice{"transformer.h", {blocks - 1}, {"transformer.wpe", "transformer.ln_f"}};
  const auto small = models::load_language_folder(folder, 7, {}, &choice);
  EXPECT_EQ(small->shape().blocks, 1);
  EXPECT_EQ(small->hf_config().at("n_layer").as_int(), 1);
  const auto from = whole->named_parameters(), to = small->named_parameters();
  std::size_t compared = 0;
  for (const auto& item : to) {
    std::string name = item.key();
    if (name.starts_with("transformer.h.0.")) name = concat("transformer.h.", blocks - 1, name.substr(15));
    if (name == "transformer.wte.weight") {
      EXPECT_FALSE(item.value().equal(from[name])) << name << " is newly initialised";
    } else {
      EXPECT_TRUE(item.value().equal(from[name])) << name;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 15u);
  // The same for a deferred model that is read in pieces.
  ModelConfig config;
  config.model_name_or_path = folder;
  std::string weights_folder;
  const auto deferred = models::load_model_deferred(config, 7, weights_folder, {}, &choice);
  const models::WeightSource weights(*deferred, weights_folder, {}, {}, &choice);
  models::fill_parameters(*deferred, &weights);
  for (const auto& item : deferred->named_parameters()) EXPECT_TRUE(item.value().equal(to[item.key()])) << item.key();

  const auto refused = [&](const models::BlockChoice& wrong) {
    return error_of([&] { models::load_language_folder(folder, 7, {}, &wrong); });
  };
  EXPECT_EQ(
      refused({"bert.encoder.layer", {0}, {}}),
      "layer_reduction.module_name_prefix is bert.encoder.layer, but the model's blocks are transformer.h.0, ...: "
      "give transformer.h");
  EXPECT_NE(refused({"transformer.h", {0, blocks}, {}}).find(concat("names layer ", blocks, ", but the model has ")),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::train
