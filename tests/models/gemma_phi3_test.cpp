// Gemma and Phi-3 beyond the fixtures of llama_parity_test.cpp: sizes of the published models, initial weights,
// adapters, and errors for unsupported settings.
#include <gtest/gtest.h>

#include <tessera/architectures/architecture.h>
#include <tessera/base/error.h>
#include <tessera/models/decoders/phi3.h>
#include <tessera/models/load.h>
#include <tessera/models/lora.h>
#include <tessera/models/tensor_plans.h>
#include <tests/error_of.h>
#include <tests/models/decoder_fixture.h>

namespace {

using namespace tessera;
using tessera::testing::decoder_fixture;
using tessera::testing::error_of;
using tessera::testing::parameters_of;

TEST(GemmaPhi3, published_models_have_their_sizes) {
  EXPECT_EQ(parameters_of(R"({"model_type": "gemma", "hidden_size": 2048, "intermediate_size": 16384,
      "num_attention_heads": 8, "num_key_value_heads": 1, "num_hidden_layers": 18, "head_dim": 256,
      "vocab_size": 256000, "max_position_embeddings": 8192, "hidden_act": "gelu"})"),
            2506172416);  // gemma-2b
  EXPECT_EQ(parameters_of(R"({"model_type": "gemma2", "hidden_size": 2304, "intermediate_size": 9216,
      "num_attention_heads": 8, "num_key_value_heads": 4, "num_hidden_layers": 26, "head_dim": 256,
      "vocab_size": 256000, "max_position_embeddings": 8192})"),
            2614341888);  // gemma-2-2b
  EXPECT_EQ(parameters_of(R"({"model_type": "gemma3_text", "hidden_size": 1152, "intermediate_size": 6912,
      "num_attention_heads": 4, "num_key_value_heads": 1, "num_hidden_layers": 26, "head_dim": 256,
      "vocab_size": 262144, "max_position_embeddings": 32768})"),
            999885952);  // gemma-3-1b
  EXPECT_EQ(parameters_of(R"({"model_type": "phi3", "hidden_size": 3072, "intermediate_size": 8192,
      "num_attention_heads": 32, "num_key_value_heads": 32, "num_hidden_layers": 32, "vocab_size": 32064,
      "max_position_embeddings": 4096})"),
            3821079552);  // Phi-3-mini-4k
  EXPECT_EQ(parameters_of(R"({"model_type": "phi3", "hidden_size": 3072, "intermediate_size": 8192,
      "num_attention_heads": 24, "num_key_value_heads": 8, "num_hidden_layers": 32, "vocab_size": 200064,
      "max_position_embeddings": 131072, "partial_rotary_factor": 0.75, "tie_word_embeddings": true})"),
            3836021760);  // Phi-4-mini
}

TEST(GemmaPhi3, from_scratch_by_the_rule_of_transformers) {
  for (const char* name : {"gemma", "gemma2", "gemma3_text", "phi3"}) {
    const double norm = std::string(name) == "phi3" ? 1 : 0;  // Gemma's factor is 1 + weight
    for (const auto& item : models::make_language_model(decoder_fixture(name), 3)->named_parameters()) {
      if (item.value().dim() == 1) {
        EXPECT_TRUE(item.value().eq(norm).all().item<bool>()) << name << " " << item.key();
      } else {
        EXPECT_NEAR(item.value().std().item<double>(), 0.02, 0.003) << name << " " << item.key();
      }
    }
  }
}

TEST(GemmaPhi3, layers_take_turns) {
  const architectures::ModelSpec two = architectures::read_model(decoder_fixture("gemma2"));
  EXPECT_EQ(two.windows, (std::vector<std::int64_t>{6, 0, 6}));
  const architectures::ModelSpec three = architectures::read_model(decoder_fixture("gemma3_text"));
  EXPECT_EQ(three.windows, (std::vector<std::int64_t>{6, 6, 0}));
  EXPECT_EQ(three.rotations, (std::vector{architectures::LayerRope::local, architectures::LayerRope::local,
                                          architectures::LayerRope::usual}));
  EXPECT_EQ(three.local_rope->theta, 100);
  EXPECT_EQ(three.local_rope->factor, 1);
  EXPECT_EQ(three.rope.theta, 5000);
  EXPECT_EQ(three.rope.factor, 2);
  EXPECT_EQ(three.rope.longest_sequence(), 64) << "max_position_embeddings is the extended length";
}

TEST(GemmaPhi3, adapters_of_packed_maps_are_cut_with_them) {
  const auto model = models::make_language_model(decoder_fixture("phi3"), 1);
  EXPECT_EQ(model->default_lora_targets(), std::vector<std::string>{"qkv_proj"});
  checkpoint::LoraConfig config;
  config.r = 2;
  (void)models::apply_lora(*model, config, 3);
  const layout::TensorPlan plan = models::tensor_plan(*model);
  const auto rule = std::find_if(plan.begin(), plan.end(), [](const layout::TensorRule& r) {
    return layout::matches(r.pattern, "model.layers.0.self_attn.qkv_proj.lora_B.weight");
  });
  ASSERT_NE(rule, plan.end());
  EXPECT_EQ(rule->style, layout::TensorStyle::colwise);
  EXPECT_EQ(rule->block_heads, (std::vector<std::int64_t>{4, 2, 2}));
}

TEST(GemmaPhi3, what_they_do_not_have_is_refused_by_name) {
  const auto error = [](const char* name, const char* overrides) {
    return error_of([&] { (void)models::make_language_model(decoder_fixture(name, overrides), 1); });
  };
  EXPECT_NE(error_of([] {
              (void)models::make_language_model(parse_json(R"({"model_type": "gemma3"})", "config.json"), 1);
            }).find("model type \"gemma3\" is not supported; known: "),
            std::string::npos);
  EXPECT_NE(error("gemma2", "use_bidirectional_attention=true").find("use_bidirectional_attention is not supported"),
            std::string::npos);
  EXPECT_NE(error("gemma2", "hidden_activation=silu").find("hidden_activation \"silu\" is not supported"),
            std::string::npos);
  EXPECT_NE(error("gemma2", "attn_logit_softcapping=-1").find("must be positive"), std::string::npos);
  const auto phi3 = [](const std::string& rope) {
    Value config = decoder_fixture("phi3");
    config.set("rope_parameters", parse_json(rope, "rope"));
    return error_of([&] { (void)models::make_language_model(config, 1); });
  };
  EXPECT_NE(phi3(R"({"partial_rotary_factor": 0.4})").find("rotates 3 elements of each head of 8"), std::string::npos);
  EXPECT_NE(phi3(R"({"rope_type": "longrope", "short_factor": [1, 1, 1], "long_factor": [1, 1, 1, 1]})")
                .find("\"short_factor\" has 3 entries for 8 rotated elements"),
            std::string::npos);
  EXPECT_EQ(phi3(R"({"rope_type": "yarn", "short_factor": [1, 1, 1, 1], "long_factor": [1, 1, 1, 1]})"), "")
      << "an old name of longrope";
}

}  // namespace
