// Megatron's GPT against the transformers families that it covers: the same weights under the same switches give the
// logits and gradients of their fixtures, which transformers made.
#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/checkpoint/tensor_bridge.h>
#include <tessera/models/decoders/linear_attention.h>
#include <tessera/models/llama.h>
#include <tessera/models/load.h>
#include <tessera/models/moe_mlp.h>
#include <tests/error_of.h>
#include <tests/models/decoder_fixture.h>
#include <tests/nn/compare.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace tessera;
using models::Llama;
using tessera::testing::decoder_fixture;
using tessera::testing::error_of;

using Weights = std::map<std::string, at::Tensor>;

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

/// The config.json settings that both have: sizes, rotation, whether the head is tied.
Value megatron_config(const Value& fixture, const std::string& members) {
  Value config = parse_json("{" + members + "}", "megatron");
  config.set("model_type", Value::of("megatron_gpt"));
  for (const char* key : {"hidden_size",
                          "num_hidden_layers",
                          "num_attention_heads",
                          "num_key_value_heads",
                          "head_dim",
                          "intermediate_size",
                          "vocab_size",
                          "max_position_embeddings",
                          "rope_parameters",
                          "tie_word_embeddings",
                          "mlp_only_layers",
                          "num_experts_per_tok",
                          "moe_intermediate_size",
                          "norm_topk_prob",
                          "shared_expert_intermediate_size",
                          "q_lora_rank",
                          "kv_lora_rank",
                          "qk_nope_head_dim",
                          "qk_rope_head_dim",
                          "v_head_dim"})
    if (const Value* value = fixture.find(key); value && config.find(key) == nullptr) config.set(key, *value);
  for (const char* dropout : {"hidden_dropout", "attention_dropout"}) config.set(dropout, Value::of(0.0));
  return config;
}

struct Outcome {
  at::Tensor logits;
  Weights gradients;  ///< by Megatron GPT's names
};

Outcome outcome_of(Llama& model, const std::function<std::string(const std::string&)>& named) {
  at::manual_seed(3);
  const at::Tensor ids = at::randint(0, 97, {2, 14}, at::kLong);
  model.train();
  model.loss(ids, ids, 1.0 / 26).backward();
  Outcome outcome;
  for (const auto& item : model.named_parameters())
    if (item.value().grad().defined()) outcome.gradients[named(item.key())] = item.value().grad();
  const at::NoGradGuard no_grad;
  model.eval();
  outcome.logits = model.logits(ids);
  return outcome;
}

struct Case {
  const char* fixture;
  std::vector<const char*> without;  ///< members of the fixture that are set to null
  std::string members;               ///< additional members of Megatron's config.json
  std::function<std::string(std::string)> named = [](std::string name) { return name; };
  std::string changed = {};  ///< members of the fixture with other values
};

std::shared_ptr<Llama> made(const Value& config) {
  return std::dynamic_pointer_cast<Llama>(models::make_language_model(config, 5));
}

void expect_same(const Case& test) {
  SCOPED_TRACE(test.fixture);
  Value config = decoder_fixture(test.fixture, "");
  for (const char* member : test.without) config.set(member, Value());
  const Value changed = parse_json("{" + test.changed + "}", "changed");
  for (const auto& [key, value] : changed.members()) config.set(key, value);
  const auto wanted = made(config), model = made(megatron_config(config, test.members));
  ASSERT_TRUE(wanted && model);
  {
    const at::NoGradGuard no_grad;
    at::manual_seed(8);
    Weights weights;
    for (const auto& item : wanted->named_parameters()) {
      item.value().add_(at::randn_like(item.value()) * 0.1);  // so that norms and biases also matter
      weights[test.named(item.key())] = item.value();
    }
    EXPECT_EQ(model->named_parameters().size(), weights.size());
    for (const auto& item : model->named_parameters()) {
      ASSERT_TRUE(weights.contains(item.key())) << item.key();
      at::Tensor from = weights.at(item.key());
      if (from.sizes() != item.value().sizes()) from = from.narrow(0, 2, item.value().size(0));  // OPT's positions
      item.value().copy_(from);
    }
  }
  const Outcome got = outcome_of(*model, [](const std::string& name) { return name; });
  const Outcome expected = outcome_of(*wanted, [&](const std::string& name) { return test.named(name); });
  EXPECT_LE(compare::error(got.logits, expected.logits), 2e-6);
  for (const auto& [name, gradient] : got.gradients) {
    at::Tensor other = expected.gradients.at(name);
    if (other.sizes() != gradient.sizes()) other = other.narrow(0, 2, gradient.size(0));
    EXPECT_LE((gradient - other).norm().item<double>(), 5e-6 * (other.norm().item<double>() + 1e-3)) << name;
  }
}

TEST(MegatronGpt, DenseModelsAreThoseOfTransformers) {
  const std::string rope = R"("position_embedding_type": "rope", "add_bias_linear": )";
  expect_same(
      {"qwen3", {}, rope + R"(false, "normalization": "RMSNorm", "norm_epsilon": 1e-6, "gated_linear_unit": true,
                         "hidden_act": "silu", "qk_layernorm": true)"});
  expect_same({"nemotron", {}, rope + R"(false, "layernorm_zero_centered_gamma": true, "hidden_act": "relu2")"});
  expect_same(
      {"starcoder2", {"sliding_window"}, rope + R"(true, "hidden_act": "gelu_pytorch_tanh")", [](std::string name) {
         return replaced(replaced(name, "c_fc", "up_proj"), "c_proj", "down_proj");
       }});
  expect_same({"opt",
               {},
               R"("position_embedding_type": "learned_absolute", "hidden_act": "relu", "intermediate_size": 56)",
               [](std::string name) {
                 name = replaced(name, "model.decoder.final_layer_norm", "model.norm");
                 for (const auto& [theirs, ours] : {std::pair("model.decoder.", "model."),
                                                    {"self_attn_layer_norm", "input_layernorm"},
                                                    {"final_layer_norm", "post_attention_layernorm"},
                                                    {"out_proj", "o_proj"},
                                                    {".fc1.", ".mlp.up_proj."},
                                                    {".fc2.", ".mlp.down_proj."}})
                   name = replaced(name, theirs, ours);
                 return name;
               }});
}

TEST(MegatronGpt, ExpertsAreThoseOfTransformers) {
  const std::string llama =
      R"("position_embedding_type": "rope", "add_bias_linear": false, "normalization": "RMSNorm",
         "gated_linear_unit": true, "hidden_act": "silu", "num_experts": )";
  expect_same({"mixtral",
               {},
               llama + R"(6, "norm_epsilon": 1e-5, "router_scoring": "softmax_of_chosen")",
               [](std::string name) {
                 for (const auto& [theirs, ours] : {std::pair("block_sparse_moe", "mlp"),
                                                    {".w1.", ".gate_proj."},
                                                    {".w2.", ".down_proj."},
                                                    {".w3.", ".up_proj."}})
                   name = replaced(name, theirs, ours);
                 return name;
               }});
  expect_same(
      {"qwen3_moe", {}, llama + R"(8, "norm_epsilon": 1e-6, "router_scoring": "softmax", "qk_layernorm": true)"});
  expect_same({"qwen2_moe",
               {"use_sliding_window", "layer_types"},
               llama + R"(8, "norm_epsilon": 1e-6, "router_scoring": "softmax", "add_qkv_bias": true,
                          "shared_expert_gate": true)"});
}

TEST(MegatronGpt, LatentAttentionIsThatOfTransformers) {
  expect_same({"deepseek_v3",
               {},
               R"("position_embedding_type": "rope", "add_bias_linear": false, "normalization": "RMSNorm",
                  "norm_epsilon": 1e-6, "gated_linear_unit": true, "hidden_act": "silu", "qk_layernorm": true)",
               [](std::string name) { return name; },
               R"("first_k_dense_replace": 3, "rms_norm_eps": 1e-6)"});
}

// Without norms, two products with nothing between them are one product.
TEST(MegatronGpt, LatentsNeedNoNorms) {
  const std::string members =
      R"({"model_type": "megatron_gpt", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
          "intermediate_size": 48, "vocab_size": 97, "max_position_embeddings": 32, "hidden_dropout": 0.0,
          "attention_dropout": 0.0, "kv_lora_rank": 12, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 8)";
  const auto two = made(parse_json(members + R"(, "q_lora_rank": 20})", "two")),
             one = made(parse_json(members + "}", "one"));
  const at::NoGradGuard no_grad;
  Weights weights;
  at::manual_seed(4);
  for (const auto& item : two->named_parameters()) {
    EXPECT_EQ(item.key().find("a_layernorm"), std::string::npos) << item.key();
    item.value().add_(at::randn_like(item.value()) * 0.1);
    weights[item.key()] = item.value();
  }
  EXPECT_TRUE(weights.contains("model.layers.0.self_attn.o_proj.bias"));
  for (const auto& item : one->named_parameters()) {
    const std::size_t end = item.key().find("q_proj.weight");
    const std::string before = item.key().substr(0, end);
    item.value().copy_(end == std::string::npos
                           ? weights.at(item.key())
                           : weights.at(before + "q_b_proj.weight").mm(weights.at(before + "q_a_proj.weight")));
  }
  const at::Tensor ids = at::randint(0, 97, {2, 9}, at::kLong);
  const at::Tensor logits = one->logits(ids);
  EXPECT_LE(compare::error(two->logits(ids), logits), 2e-6);
  // Both the learned positions and the rotation have an effect.
  for (const char* name : {"model.embed_positions.weight", "model.layers.1.self_attn.kv_a_proj_with_mqa.weight"}) {
    weights.at(name).mul_(1.5);
    EXPECT_GT(compare::error(two->logits(ids), logits), 1e-3) << name;
  }
}

constexpr const char* linear_model =
    R"({"model_type": "megatron_gpt", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 48, "vocab_size": 97, "max_position_embeddings": 128, "hidden_dropout": 0.0,
        "attention_dropout": 0.0, "add_bias_linear": false, "position_embedding_type": "rope",
        "layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "linear_key_head_dim": 6, "linear_value_head_dim": 8, "linear_conv_kernel_dim": 3)";

/// Megatron-LM's GatedDeltaNet layer, one token after the other.
at::Tensor linear_by_hand(models::LinearAttention& layer, const at::Tensor& x) {
  const std::int64_t tokens = x.size(1), g = 2, h = 4, k = 6, v = 8;
  const at::Tensor all = at::linear(x, layer.in_proj->weight);
  const std::vector<at::Tensor> parts = all.split_with_sizes({2 * g * k + h * v, h * v, h, h}, -1);
  const at::Tensor channels =
      at::silu(at::conv1d(parts[0].transpose(1, 2), layer.conv_weight.unsqueeze(1), {}, 1, 2, 1, 2 * g * k + h * v))
          .slice(2, 0, tokens)
          .transpose(1, 2);
  const auto heads = [&](std::int64_t from, std::int64_t count, std::int64_t size) {
    return channels.slice(2, from, from + count * size).reshape({x.size(0), tokens, count, size});
  };
  const auto normal = [](const at::Tensor& y) { return y / (y.square().sum(-1, true) + 1e-6).sqrt(); };
  const at::Tensor q = normal(heads(0, g, k)), key = normal(heads(g * k, g, k)), value = heads(2 * g * k, h, v);
  at::Tensor memory = at::zeros({x.size(0), h, k, v}, x.options());
  std::vector<at::Tensor> read;
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::vector<at::Tensor> of_heads;
    for (std::int64_t i = 0; i < h; ++i) {
      const at::Tensor fade =
          (at::softplus(parts[3].select(1, t).select(1, i) + layer.dt_bias[i]) * -layer.A_log[i].exp()).exp();
      at::Tensor own = memory.select(1, i) * fade.reshape({-1, 1, 1});  // [B, K, V]
      const at::Tensor one = key.select(1, t).select(1, i / 2).unsqueeze(2);
      const at::Tensor missing = value.select(1, t).select(1, i).unsqueeze(1) - at::matmul(one.transpose(1, 2), own);
      own = own + at::matmul(one, missing) * parts[2].select(1, t).select(1, i).sigmoid().reshape({-1, 1, 1});
      memory.select(1, i).copy_(own);
      of_heads.push_back(at::matmul(q.select(1, t).select(1, i / 2).unsqueeze(1), own).squeeze(1) / std::sqrt(6.0));
    }
    read.push_back(at::stack(of_heads, 1));  // [B, H, V]
  }
  const at::Tensor gate = at::silu(parts[1].reshape({x.size(0), tokens, h, v}));
  return at::linear((layer.norm->forward(at::stack(read, 1)) * gate).flatten(2), layer.out_proj->weight);
}

TEST(MegatronGpt, LinearAttentionIsTheGatedDeltaNets) {
  const auto model = made(parse_json(concat(linear_model, "}"), "linear"));
  const at::NoGradGuard no_grad;
  const auto layer = std::dynamic_pointer_cast<models::LinearAttention>(model->model->layers[0]->self_attn);
  ASSERT_TRUE(layer);
  EXPECT_GE(layer->A_log.min().item<double>(), 0);
  EXPECT_LE(layer->A_log.max().item<double>(), std::log(16.0));
  EXPECT_TRUE(at::equal(layer->dt_bias, at::ones({4})));
  EXPECT_LE(layer->conv_weight.abs().max().item<double>(), 1 / std::sqrt(3.0));
  layer->norm->weight.uniform_(0.5, 1.5);
  layer->A_log.sub_(2);
  const at::Tensor x = at::randn({2, 70, 32});
  EXPECT_LE(compare::error(layer->forward(x, models::LlamaContext{}), linear_by_hand(*layer, x)), 2e-6);
}

TEST(MegatronGpt, LinearAttentionGoesOnWhereItWas) {
  const auto model = made(parse_json(concat(linear_model, "}"), "linear"));
  const at::NoGradGuard no_grad;
  model->eval();
  const at::Tensor ids = at::randint(0, 97, {1, 12}, at::kLong), all = model->logits(ids);
  EXPECT_LE(compare::error(model->logits(ids.slice(1, 0, 7)), all.slice(1, 0, 7)), 2e-6);
  models::KvCache cache;
  for (const auto& [begin, end] : {std::pair(0, 7), {7, 8}, {8, 12}})
    EXPECT_LE(compare::error(model->next_logits(ids.slice(1, begin, end), cache).flatten(), all[0][end - 1]), 5e-6);
  EXPECT_THROW((void)model->logits(ids, nn::DocumentStarts{{0, 4}}), InputError);
}

// A gate of 0 passes half of its input.
TEST(MegatronGpt, GatesOfAttention) {
  const auto gated = made(parse_json(concat(linear_model, R"(, "attn_output_gate": true})"), "gated"));
  const auto plain = made(parse_json(concat(linear_model, "}"), "plain"));
  const at::NoGradGuard no_grad;
  Weights weights;
  for (const auto& item : plain->named_parameters()) weights[item.key()] = item.value();
  for (const auto& item : gated->named_parameters()) {
    const at::Tensor& from = weights.at(item.key());
    if (item.key().ends_with("q_proj.weight"))
      item.value().view({4, 2, 8, 32}).copy_(at::stack({from.view({4, 8, 32}), at::zeros({4, 8, 32})}, 1));
    else
      item.value().copy_(item.key().ends_with("1.self_attn.o_proj.weight") ? from * 2 : from);
  }
  const at::Tensor ids = at::randint(0, 97, {2, 9}, at::kLong);
  EXPECT_LE(compare::error(gated->logits(ids), plain->logits(ids)), 2e-6);
}

constexpr const char* plain_experts =
    R"({"model_type": "megatron_gpt", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 48, "vocab_size": 97, "max_position_embeddings": 32, "hidden_dropout": 0.0,
        "attention_dropout": 0.0, "add_bias_linear": false)";

// Identical experts without gates, with weights that add up to 1, equal a single MLP.
TEST(MegatronGpt, EqualExpertsAreOneMlp) {
  const auto dense = made(parse_json(concat(plain_experts, "}"), "dense"));
  const auto sparse =
      made(parse_json(concat(plain_experts, R"(, "num_experts": 4, "num_experts_per_tok": 2})"), "sparse"));
  const at::NoGradGuard no_grad;
  Weights weights;
  for (const auto& item : dense->named_parameters()) weights[item.key()] = item.value();
  for (const auto& item : sparse->named_parameters()) {
    if (item.key().ends_with("mlp.gate.weight")) continue;
    const std::size_t expert = item.key().find("experts.");
    const std::string name =
        expert == std::string::npos ? item.key() : item.key().substr(0, expert) + item.key().substr(expert + 10);
    ASSERT_TRUE(weights.contains(name)) << name;
    item.value().copy_(weights.at(name));
  }
  const at::Tensor ids = at::randint(0, 97, {2, 9}, at::kLong);
  EXPECT_LE(compare::error(sparse->logits(ids), dense->logits(ids)), 2e-6);
}

/// Number of slots per expert, for each layer, in one forward pass.
std::vector<std::vector<std::int64_t>> loads(Llama& model, const at::Tensor& ids) {
  std::vector<std::vector<std::int64_t>> all;
  model.set_experts([&](const at::Tensor& x, const nn::Routing& routing, const nn::ExpertWeights& weights,
                        const nn::Meanwhile& meanwhile) {
    const at::Tensor counts = nn::expert_counts(routing.ids, weights.total);
    all.emplace_back(counts.const_data_ptr<std::int64_t>(), counts.const_data_ptr<std::int64_t>() + counts.numel());
    return nn::experts(x, routing, weights, meanwhile);
  });
  const at::NoGradGuard no_grad;
  model.logits(ids);
  model.set_experts({});
  return all;
}

TEST(MegatronGpt, SinkhornBalancesInTrainingOnly) {
  const auto model = made(parse_json(concat(plain_experts, R"(, "num_experts": 4, "num_experts_per_tok": 1,
      "router_scoring": "sigmoid", "router_balancing": "sinkhorn"})"),
                                     "sinkhorn"));
  {
    const at::NoGradGuard no_grad;
    for (const auto& item : model->named_parameters())
      if (item.key().ends_with("post_attention_layernorm.bias"))
        item.value().fill_(1);  // all tokens share a component,
      else if (item.key().ends_with("mlp.gate.weight"))
        item.value().mul_(20)[2].add_(0.6);  // which makes all of them choose one expert
  }
  at::manual_seed(2);
  const at::Tensor ids = at::randint(0, 97, {8, 32}, at::kLong);
  const auto most = [&] {
    std::int64_t largest = 0;
    for (const auto& counts : loads(*model, ids)) largest = std::max(largest, *std::ranges::max_element(counts));
    return largest;
  };
  model->train();
  EXPECT_LE(most(), 100) << "of 256 tokens, 64 for each expert";
  model->eval();
  EXPECT_GE(most(), 180);
}

TEST(MegatronGpt, WhatMakesNoModel) {
  const auto problem = [](const std::string& more) {
    Value config = parse_json(concat(plain_experts, "}"), "c.json");
    const Value changed = parse_json("{" + more + "}", "c.json");
    for (const auto& [key, value] : changed.members()) config.set(key, value);
    return error_of<InputError>([&] { (void)made(config); });
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("position_embedding_type": "relative")",
       R"(position_embedding_type "relative" is not supported; supported: learned_absolute, rope)"},
      {R"("normalization": "BatchNorm")",
       R"(normalization "BatchNorm" is not supported; supported: LayerNorm, RMSNorm)"},
      {R"("num_experts": 4, "router_scoring": "tanh")", "supported: softmax_of_chosen, softmax, sigmoid"},
      {R"("num_experts": 4, "router_balancing": "auction")", "supported: sinkhorn"},
      {R"("num_experts": 4, "num_experts_per_tok": 5)", "num_experts_per_tok"},
      {R"("num_experts": 6, "n_group": 4)", "6 experts do not divide into n_group 4 equal groups"},
      {R"("num_experts": 4, "add_bias_linear": true)", "experts with biases are not implemented"},
      {R"("num_experts": 4, "shared_expert_gate": true)", "shared_expert_gate needs shared_expert_intermediate_size"},
      {R"("gated_linear_unit": true, "hidden_act": "gelu")", "hidden_act"},
      {R"("layer_types": ["linear_attention"])", "layer_types has 1 entries for 2 layers"},
      {R"("layer_types": ["full_attention", "mamba"])", "layer type \"mamba\" is not supported"},
      {R"("layer_types": ["full_attention", "linear_attention"], "linear_num_value_heads": 6)",
       "linear_num_value_heads 6 is not a multiple of linear_num_key_heads 16"},
      {R"("attn_output_gate": true, "kv_lora_rank": 8)", "latent attention with gates is not implemented"},
      {R"("kv_lora_rank": 8, "qk_layernorm": true)", "other norms of latents are not implemented"},
      {R"("kv_lora_rank": 8, "num_key_value_heads": 2)", "in latent attention every head has its own keys"},
  };
  for (const auto& [members, text] : cases)
    EXPECT_NE(problem(members).find(text), std::string::npos) << problem(members);
}

TEST(MegatronGpt, AFolderThatIsWrittenIsReadBack) {
  const auto model = made(parse_json(concat(plain_experts, R"(, "num_experts": 4, "hidden_act": "relu2",
      "shared_expert_intermediate_size": 12, "shared_expert_gate": true, "mlp_only_layers": [1]})"),
                                     "c.json"));
  checkpoint::NamedTensors weights;
  for (const auto& item : model->named_parameters()) weights.emplace_back(item.key(), item.value().detach());
  const TemporaryFolder folder;
  checkpoint::write_hf_folder(folder.path(), weights, model->hf_config(), nullptr);
  const auto loaded = models::load_language_folder(folder.path());
  const auto read = std::dynamic_pointer_cast<Llama>(loaded);
  ASSERT_TRUE(read);
  const at::Tensor ids = at::arange(18, at::kLong).view({2, 9});
  const at::NoGradGuard no_grad;
  model->eval();
  read->eval();
  EXPECT_TRUE(at::equal(read->logits(ids), model->logits(ids)));
  EXPECT_EQ(read->named_parameters().size(), model->named_parameters().size());
}

TEST(MegatronGpt, FromScratch) {
  const auto model = made(parse_json(concat(plain_experts, R"(, "layernorm_zero_centered_gamma": true})"), "c.json"));
  for (const auto& item : model->named_parameters()) {
    if (item.value().dim() == 1) {
      EXPECT_EQ(item.value().abs().max().item<double>(), 0) << item.key();  // factors are 1 + weight
    }
  }
}

}  // namespace
