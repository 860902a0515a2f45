// Tensor plans of models, depending on config.json and on adapters.
#include <gtest/gtest.h>

#include <tessera/models/load.h>
#include <tessera/models/lora.h>
#include <tessera/models/tensor_plans.h>
#include <tests/error_of.h>

#include <map>

namespace tessera::models {
namespace {

using layout::TensorRule;
using layout::TensorStyle;
using testing::error_of;

std::shared_ptr<LanguageModel> llama(const std::string& more) {
  return make_language_model(parse_json(R"({"model_type": "llama", "hidden_size": 32, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 48, "num_hidden_layers": 1, "vocab_size": 37,
      "max_position_embeddings": 16)" + more +
                                            "}",
                                        "llama"),
                             1);
}

/// The rule that applies to each parameter.
std::map<std::string, TensorRule> rules(const LanguageModel& model) {
  std::map<std::string, TensorRule> all;
  const layout::TensorPlan plan = tensor_plan(model);
  for (const auto& item : model.named_parameters())
    for (const TensorRule& rule : plan)
      if (layout::matches(rule.pattern, item.key())) {
        all.emplace(item.key(), rule);
        break;
      }
  return all;
}

TEST(TensorPlans, config_json_takes_the_place_of_what_it_names) {
  const auto own = rules(*llama(""));
  const auto changed = rules(*llama(R"(, "base_model_tp_plan": {"layers.*.self_attn.q_proj": "colwise",
      "layers.*.mlp.gate_proj": "colwise_rep", "layers.*.mlp.up_proj": "colwise_rep",
      "layers.*.mlp.down_proj": "rowwise_rep"})"));
  ASSERT_EQ(own.size(), changed.size());
  for (const auto& [name, rule] : own) {
    const bool mlp = name.find("mlp") != std::string::npos;
    EXPECT_EQ(changed.at(name).heads, rule.heads) << name;
    EXPECT_TRUE(mlp || changed.at(name).style == rule.style) << name;
  }
  EXPECT_EQ(changed.at("model.layers.0.self_attn.q_proj.weight").heads, 4);
  EXPECT_EQ(changed.at("model.layers.0.mlp.up_proj.weight").style, TensorStyle::colwise_gather_output);
  EXPECT_NE(error_of<InputError>([&] {
              (void)tensor_plan(*llama(R"(, "tp_plan": {"nothing": "colwise"})"));
            }).find("no such parameter"),
            std::string::npos);
  EXPECT_NE(error_of<InputError>([&] {
              (void)tensor_plan(*llama(R"(, "tp_plan": {"k_proj": "colwise_rep"})"));
            }).find("a different style than"),
            std::string::npos);
  EXPECT_NE(
      error_of<InputError>([&] { (void)tensor_plan(*llama(R"(, "tp_plan": {"q_proj": "colwize"})")); }).find("colwise"),
      std::string::npos);
}

TEST(TensorPlans, adapters_are_cut_with_their_maps) {
  const auto model = llama("");
  LoraConfig config;
  config.r = 2;
  config.target_modules = {"q_proj", "down_proj"};
  (void)apply_lora(*model, config, 3);
  const auto cut = rules(*model);
  EXPECT_EQ(cut.at("model.layers.0.self_attn.q_proj.lora_B.weight").style, TensorStyle::colwise);
  EXPECT_EQ(cut.at("model.layers.0.self_attn.q_proj.lora_B.weight").heads, 4);
  EXPECT_EQ(cut.at("model.layers.0.self_attn.q_proj.lora_A.weight").style, TensorStyle::sequence_parallel);
  EXPECT_EQ(cut.at("model.layers.0.mlp.down_proj.lora_A.weight").style, TensorStyle::rowwise);
  EXPECT_EQ(cut.at("model.layers.0.mlp.down_proj.lora_B.weight").style, TensorStyle::sequence_parallel);
}

}  // namespace
}  // namespace tessera::models
