// OLMo, Granite, SmolLM3, Arcee, Nemotron, StableLM, StarCoder2, Cohere and GPT-NeoX beyond the fixtures of
// llama_parity_test.cpp: sizes of the published models, initial weights, names, dropout, and errors for unsupported
// settings.
#include <gtest/gtest.h>

#include <tessera/architectures/architecture.h>
#include <tessera/base/error.h>
#include <tessera/models/decoders/gpt_neox.h>
#include <tessera/models/load.h>
#include <tests/error_of.h>
#include <tests/models/decoder_fixture.h>

namespace {

using namespace tessera;
using tessera::testing::decoder_fixture;
using tessera::testing::error_of;
using tessera::testing::parameters_of;

TEST(DenseDecoders, published_models_have_their_sizes) {
  EXPECT_EQ(parameters_of(R"({"model_type": "gpt_neox", "hidden_size": 2560, "intermediate_size": 10240,
      "num_attention_heads": 32, "num_hidden_layers": 32, "vocab_size": 50304, "max_position_embeddings": 2048})"),
            2775208960);  // pythia-2.8b
  EXPECT_EQ(parameters_of(R"({"model_type": "olmo2", "hidden_size": 4096, "intermediate_size": 11008,
      "num_attention_heads": 32, "num_hidden_layers": 32, "vocab_size": 100352, "max_position_embeddings": 4096})"),
            7298617344);  // OLMo-2-1124-7B
  EXPECT_EQ(parameters_of(R"({"model_type": "starcoder2", "hidden_size": 3072, "intermediate_size": 12288,
      "num_attention_heads": 24, "num_key_value_heads": 2, "num_hidden_layers": 30, "vocab_size": 49152,
      "max_position_embeddings": 16384})"),
            3030371328);  // starcoder2-3b
  EXPECT_EQ(parameters_of(R"({"model_type": "stablelm", "hidden_size": 2560, "intermediate_size": 6912,
      "num_attention_heads": 32, "num_key_value_heads": 32, "num_hidden_layers": 32, "vocab_size": 50304,
      "max_position_embeddings": 4096})"),
            2795443200);  // stablelm-3b-4e1t
  EXPECT_EQ(parameters_of(R"({"model_type": "cohere", "hidden_size": 8192, "intermediate_size": 22528,
      "num_attention_heads": 64, "num_key_value_heads": 64, "num_hidden_layers": 40, "vocab_size": 256000,
      "max_position_embeddings": 8192})"),
            34980831232);  // c4ai-command-r-v01
  EXPECT_EQ(parameters_of(R"({"model_type": "smollm3", "hidden_size": 2048, "intermediate_size": 11008,
      "num_attention_heads": 16, "num_key_value_heads": 4, "num_hidden_layers": 36, "vocab_size": 128256,
      "max_position_embeddings": 65536})"),
            3075098624);  // SmolLM3-3B
  EXPECT_EQ(parameters_of(R"({"model_type": "phi", "hidden_size": 2560, "intermediate_size": 10240,
      "num_attention_heads": 32, "num_hidden_layers": 32, "vocab_size": 51200, "max_position_embeddings": 2048})"),
            2779683840);  // phi-2
  EXPECT_EQ(parameters_of(R"({"model_type": "opt", "hidden_size": 768, "ffn_dim": 3072, "num_attention_heads": 12,
      "num_hidden_layers": 12, "vocab_size": 50272, "max_position_embeddings": 2048})"),
            125239296);  // opt-125m
}

TEST(DenseDecoders, from_scratch_by_the_rule_of_transformers) {
  for (const char* name : {"granite", "nemotron", "stablelm", "starcoder2", "cohere", "gpt_neox", "phi", "opt"}) {
    const double deviation = std::string(name) == "starcoder2" ? 0.018042
                             : std::string(name) == "nemotron" ? 0.0134
                                                               : 0.02;
    for (const auto& item : models::make_language_model(decoder_fixture(name), 3)->named_parameters()) {
      if (item.value().dim() == 1) {
        const double all = item.key().ends_with("bias") ? 0 : 1;  // also Nemotron's, whose factor is 1 + weight
        EXPECT_TRUE(item.value().eq(all).all().item<bool>()) << name << " " << item.key();
      } else {
        EXPECT_NEAR(item.value().std().item<double>(), deviation, 0.15 * deviation) << name << " " << item.key();
      }
    }
  }
}

TEST(DenseDecoders, layers_take_turns) {
  using enum architectures::LayerRope;
  const auto config = [](const char* name) {
    const auto model = std::dynamic_pointer_cast<models::Llama>(models::make_language_model(decoder_fixture(name), 1));
    std::vector<architectures::LayerRope> rotations;
    for (const auto& layer : model->model->layers)
      rotations.push_back(std::dynamic_pointer_cast<models::LlamaAttention>(layer->self_attn)->heads.rotation);
    return rotations;
  };
  EXPECT_EQ(config("smollm3"), (std::vector{usual, usual, usual, none}));
  EXPECT_EQ(config("cohere2"), (std::vector{usual, usual, usual, none}));
  EXPECT_EQ(config("olmo3"), (std::vector{local, local, local, usual}));
}

TEST(DenseDecoders, the_head_of_gpt_neox_has_two_names) {
  const Value config = decoder_fixture("gpt_neox"), tied = decoder_fixture("gpt_neox_serial");
  const auto tensor_name = architectures::architecture_of(config).tensor_name;
  EXPECT_EQ(tensor_name("lm_head.weight", config), "embed_out.weight");
  EXPECT_EQ(tensor_name("embed_out.weight", config), "embed_out.weight");
  EXPECT_EQ(tensor_name("embed_out.weight", tied), "");
  EXPECT_EQ(tensor_name("gpt_neox.layers.0.attention.masked_bias", config), "");
  EXPECT_EQ(models::make_language_model(tied, 1)->tied_parameter(), "gpt_neox.embed_in.weight");
}

TEST(DenseDecoders, published_opt_leaves_out_the_outer_name) {
  const Value config = decoder_fixture("opt");
  const auto tensor_name = architectures::architecture_of(config).tensor_name;
  EXPECT_EQ(tensor_name("decoder.layers.0.fc1.weight", config), "model.decoder.layers.0.fc1.weight");
  EXPECT_EQ(tensor_name("model.decoder.layers.0.fc1.weight", config), "model.decoder.layers.0.fc1.weight");
  EXPECT_EQ(tensor_name("lm_head.weight", config), "");
}

TEST(DenseDecoders, every_dropout_acts) {
  const at::Tensor ids = at::arange(20, at::kLong).view({2, 10});
  const auto loss = [&](const char* name, const std::string& overrides) {
    const auto model = models::make_language_model(decoder_fixture(name, overrides), 1);
    model->train();
    data::Batch batch;
    batch.ids = batch.labels = ids;
    return model->loss(batch, 1).item<double>();
  };
  for (const auto& [name, key] :
       {std::pair("gpt_neox", "hidden_dropout"), std::pair("gpt_neox", "attention_dropout"),
        std::pair("stablelm", "hidden_dropout"), std::pair("starcoder2", "residual_dropout"),
        std::pair("starcoder2", "embedding_dropout"), std::pair("olmo2", "attention_dropout"),
        std::pair("phi", "resid_pdrop"), std::pair("phi", "embd_pdrop"), std::pair("opt", "dropout")})
    EXPECT_NE(loss(name, concat(key, "=0.5")), loss(name, concat(key, "=0.0"))) << name << " " << key;
}

TEST(DenseDecoders, what_they_do_not_have_is_refused_by_name) {
  const auto error = [](const char* name, const char* overrides) {
    return error_of([&] { (void)models::make_language_model(decoder_fixture(name, overrides), 1); });
  };
  EXPECT_NE(error("stablelm", "qk_layernorm=true").find("qk_layernorm"), std::string::npos);
  EXPECT_NE(error("opt", "word_embed_proj_dim=16").find("word_embed_proj_dim"), std::string::npos);
  EXPECT_NE(error("opt", "do_layer_norm_before=false").find("OPT-350m"), std::string::npos);
  EXPECT_NE(error("phi", "tie_word_embeddings=true").find("Phi's head has its own matrix"), std::string::npos);
  EXPECT_NE(error("cohere", "use_qk_norm=true").find("use_qk_norm"), std::string::npos);
  EXPECT_NE(error("nemotron", "hidden_act=mish").find("hidden_act \"mish\" is not supported"), std::string::npos);
  EXPECT_NE(error("granite", "hidden_act=relu").find("hidden_act \"relu\" is not supported"), std::string::npos);
  EXPECT_NE(error("granite", "logits_scaling=0").find("must be positive"), std::string::npos);
  Value smol = decoder_fixture("smollm3");
  smol.set("no_rope_layers", parse_json("[1]", "list"));
  EXPECT_NE(error_of([&] { (void)models::make_language_model(smol, 1); }).find("no_rope_layers has 1 entries for 4"),
            std::string::npos);
  Value config = decoder_fixture("stablelm");
  config.set("rope_parameters", parse_json(R"({"rope_theta": 10000, "partial_rotary_factor": 0.2})", "rope"));
  EXPECT_NE(
      error_of([&] { (void)models::make_language_model(config, 1); }).find("rotates 3 elements of each head of 16"),
      std::string::npos);
}

}  // namespace
