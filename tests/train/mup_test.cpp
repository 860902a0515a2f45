// Maximal update parameterization: a wide model's initial values, the factors of its parts, the rates of its
// parameters, and that activations keep their size for any width.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <tessera/architectures/architecture.h>
#include <tessera/architectures/mup.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/value.h>
#include <tessera/config/core/run_config.h>
#include <tessera/models/load.h>
#include <tessera/parallel/fully_shard.h>
#include <tessera/train/core/update.h>
#include <tessera/train/loop/sharding.h>

#include <tests/error_of.h>
#include <tests/paths.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>

#include "one_rank.h"

namespace tessera::train {
namespace {

using tessera::testing::error_of;

ModelConfig gpt2(std::int64_t width, bool mup = true) {
  ModelConfig config;
  config.config_name = "gpt2-tiny";
  config.config_overrides = concat("n_layer=2,n_embd=", width, ",n_head=", width / 16,
                                   ",vocab_size=64,n_positions=32,tie_word_embeddings=false");
  config.use_mup = mup;
  config.mup_base_hidden_size = mup ? 32 : 0;
  return config;
}
ModelConfig llama(std::int64_t width, bool mup = true) {
  ModelConfig config = gpt2(width, mup);
  config.config_name = "llama-tiny";
  config.config_overrides = concat("num_hidden_layers=2,hidden_size=", width, ",num_attention_heads=", width / 16,
                                   ",num_key_value_heads=", width / 16, ",head_dim=16,intermediate_size=", 3 * width,
                                   ",vocab_size=64,max_position_embeddings=32,tie_word_embeddings=false");
  return config;
}

std::map<std::string, at::Tensor> weights(const models::LanguageModel& model) {
  std::map<std::string, at::Tensor> all;
  for (const auto& item : model.named_parameters()) all[item.key()] = item.value().detach();
  return all;
}

TEST(Mup, WeightsBeginByTheWidth) {
  const auto deviation = [](const std::map<std::string, at::Tensor>& all, const char* name) {
    return all.at(name).std().item<double>();
  };
  const double hidden = 0.02 / 2, residual = 0.02 / std::sqrt(2.0 * 2 * 4);
  const auto a = weights(*models::load_language_model(gpt2(128), 1));
  EXPECT_NEAR(deviation(a, "transformer.wte.weight"), 0.02, 1e-3);
  EXPECT_NEAR(deviation(a, "transformer.wpe.weight"), 0.02, 1e-3);
  EXPECT_NEAR(deviation(a, "lm_head.weight"), 0.02, 1e-3);
  EXPECT_NEAR(deviation(a, "transformer.h.1.attn.c_attn.weight"), hidden, 5e-4);
  EXPECT_NEAR(deviation(a, "transformer.h.1.mlp.c_fc.weight"), hidden, 5e-4);
  EXPECT_NEAR(deviation(a, "transformer.h.0.attn.c_proj.weight"), residual, 3e-4);
  EXPECT_NEAR(deviation(a, "transformer.h.0.mlp.c_proj.weight"), residual, 3e-4);
  const auto b = weights(*models::load_language_model(llama(128), 1));
  EXPECT_NEAR(deviation(b, "model.embed_tokens.weight"), 0.02, 1e-3);
  EXPECT_NEAR(deviation(b, "lm_head.weight"), 0.02, 1e-3);
  EXPECT_NEAR(deviation(b, "model.layers.1.self_attn.q_proj.weight"), hidden, 5e-4);
  EXPECT_NEAR(deviation(b, "model.layers.1.mlp.gate_proj.weight"), hidden, 5e-4);
  EXPECT_NEAR(deviation(b, "model.layers.0.self_attn.o_proj.weight"), residual, 3e-4);
  EXPECT_NEAR(deviation(b, "model.layers.0.mlp.down_proj.weight"), residual, 3e-4);
}

// The factors, compared with a plain model whose weights include them.
TEST(Mup, FactorsAreThoseOfWeights) {
  const at::Tensor ids = at::randint(64, {2, 12}, at::kLong);
  const at::NoGradGuard no_grad;
  for (const bool is_llama : {false, true}) {
    ModelConfig with = is_llama ? llama(64) : gpt2(64);
    with.mup_embedding_mult = 3;
    const auto plain = models::load_language_model(is_llama ? llama(64, false) : gpt2(64, false), 1);
    for (const auto& [base_head, power] : {std::pair(0.0, 1.0), std::pair(64.0, 1.0), std::pair(0.0, 0.5)}) {
      with.mup_base_head_dim = base_head;
      with.mup_attn_scale_power = power;
      const auto model = models::load_language_model(with, 2);
      const auto from = weights(*model);
      for (auto& [name, to] : weights(*plain)) to.copy_(from.at(name));
      const double score = (base_head > 0 ? 8 : 1) / std::pow(16.0, power) * 4;  // divided by 1 / sqrt(16)
      auto to = weights(*plain);
      to.at("lm_head.weight").mul_(0.5);  // 32 / 64
      if (is_llama) {
        to.at("model.embed_tokens.weight").mul_(3);
        for (const char* layer : {"0", "1"})
          to.at(concat("model.layers.", layer, ".self_attn.q_proj.weight")).mul_(score);
      } else {
        to.at("transformer.wte.weight").mul_(3);
        to.at("transformer.wpe.weight").mul_(3);
        for (const char* layer : {"0", "1"})
          to.at(concat("transformer.h.", layer, ".attn.c_attn.weight")).slice(1, 0, 64).mul_(score);
      }
      const at::Tensor a = model->forward(ids), b = plain->forward(ids);
      EXPECT_TRUE(at::allclose(a, b, 1e-4, 1e-6)) << (a - b).abs().max().item<double>();
    }
    with.mup_output_mult = 2;
    with.mup_base_head_dim = 0;
    with.mup_attn_scale_power = 0.5;
    const auto model = models::load_language_model(with, 2);
    EXPECT_TRUE(at::allclose(model->forward(ids), 4 * plain->forward(ids), 1e-4, 1e-6)) << "2 in place of 32 / 64";
  }
}

TEST(Mup, FollowsFromConfigJson) {
  ModelConfig config = llama(128);
  const auto model = models::load_language_model(config, 1);
  EXPECT_EQ(model->spec().mup.value_or(architectures::Mup{}).width, 4);
  EXPECT_EQ(model->hf_config().at("mup_base_hidden_size").as_int(), 32);
  config.mup_base_hidden_size = 0;
  EXPECT_EQ(models::load_language_model(config, 1)->spec().mup.value_or(architectures::Mup{}).width, 1)
      << "its own width";
  EXPECT_EQ(models::load_language_model(llama(128, false), 1)->spec().mup.value_or(architectures::Mup{}).width, 1);
  EXPECT_EQ(models::load_language_model(gpt2(64), 1)->spec().mup.value_or(architectures::Mup{}).width, 2);

  ModelConfig latent = llama(64);
  latent.config_name = "deepseek-v3-tiny";
  latent.config_overrides = "";
  EXPECT_NE(error_of([&] { models::load_language_model(latent, 1); }).find("latent attention has its own scale"),
            std::string::npos)
      << error_of([&] { models::load_language_model(latent, 1); });

  Value phi = parse_json(read_file(tessera::testing::source_path("tests/fixtures/llama/phi/config.json")), "phi");
  phi.set("use_mup", Value::of(true));
  EXPECT_NE(error_of([&] { architectures::read_model(phi); }).find("the head has a bias"), std::string::npos);
}

/// A model with its sharding and its update, on this one rank.
struct Run {
  std::shared_ptr<models::LanguageModel> model;
  std::unique_ptr<Sharded> sharded;
  std::unique_ptr<Update> update;

  explicit Run(const ModelConfig& config, const OptimizationConfig& optimization) {
    RunConfig run;
    run.model = config;
    run.optimization = optimization;
    model = models::load_language_model(config, 1);
    sharded = std::make_unique<Sharded>(*model, sharding_options(run, *model, one_rank()));
    const auto* const of = model.get();
    const ParameterKinds kinds = {[of](const std::string& name) { return of->is_embedding(name); },
                                  [of](const std::string& name) { return of->is_embedding(name, true); },
                                  of->spec().mup.value_or(architectures::Mup{}).width};
    update = configured_update(optimization, decay_everything(0), kinds)(*model, *sharded);
  }
};

/// How far each parameter moves in a step in which every gradient element is `gradient`.
std::map<std::string, double> moves(const OptimizationConfig& optimization, double gradient) {
  Run run(gpt2(128), optimization);
  std::map<std::string, at::Tensor> before;
  for (const auto& [name, w] : weights(*run.model)) before[name] = w.clone();
  for (const ShardedParameter& p : run.sharded->named_parameters())
    at::Tensor(p.local).mutable_grad() = at::full_like(p.local, gradient);
  run.update->step(1);
  std::map<std::string, double> all;
  for (const auto& [name, w] : weights(*run.model)) all[name] = (before.at(name) - w).max().item<double>();
  return all;
}

TEST(Mup, RatesFollowTheWidthAndTheOptimizer) {
  const char *const hidden = "transformer.h.0.mlp.c_fc.weight", *const bias = "transformer.h.0.mlp.c_fc.bias",
                    *const norm = "transformer.h.0.ln_1.weight", *const words = "transformer.wte.weight",
                    *const places = "transformer.wpe.weight", *const head = "lm_head.weight";
  OptimizationConfig o;
  o.learning_rate = 0.5;
  for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::lion}) {
    o.optim = kind;
    const auto moved = moves(o, 1);
    EXPECT_NEAR(moved.at(hidden), 0.125, 1e-4) << kind;
    for (const char* name : {bias, norm, words, places, head}) EXPECT_NEAR(moved.at(name), 0.5, 1e-4) << name << kind;
  }
  o.optim = OptimizerKind::adamw;
  o.adam_epsilon = 1;  // as large as the gradient, times m
  auto moved = moves(o, 1);
  EXPECT_NEAR(moved.at(hidden), 0.125 / 1.25, 1e-4);
  EXPECT_NEAR(moved.at(words), 0.5 / 2, 1e-4);
  o.adam_epsilon = 1e-8;
  o.decoupled_lr = 2;
  moved = moves(o, 1);
  EXPECT_NEAR(moved.at(hidden), 0.125, 1e-4);
  EXPECT_NEAR(moved.at(places), 0.5, 1e-4);
  for (const char* name : {words, head}) EXPECT_NEAR(moved.at(name), 2, 1e-4) << name;
  o.optim = OptimizerKind::sgd;
  moved = moves(o, 1);
  EXPECT_NEAR(moved.at(hidden), 0.5, 1e-4);
  for (const char* name : {bias, norm, places}) EXPECT_NEAR(moved.at(name), 2, 1e-4) << name;
  for (const char* name : {words, head}) EXPECT_NEAR(moved.at(name), 2, 1e-4) << name;
  o.decoupled_lr = -1;
  moved = moves(o, 1);
  for (const char* name : {bias, norm, words, head}) EXPECT_NEAR(moved.at(name), 2, 1e-4) << name;
  o.optim = OptimizerKind::lamb;
  EXPECT_NE(error_of([&] { moves(o, 1); }).find("--optim lamb contradicts use_mup"), std::string::npos);
}

/// Mean absolute logits after some steps on one batch, minus those before.
double change_of_logits(const ModelConfig& config) {
  OptimizationConfig o;
  o.learning_rate = 1e-2;
  Run run(config, o);
  at::manual_seed(3);
  const at::Tensor ids = at::randint(64, {4, 32}, at::kLong);
  data::Batch batch;
  batch.ids = batch.labels = ids;
  const auto logits = [&] {
    const at::NoGradGuard no_grad;
    return run.model->forward(ids);
  };
  const at::Tensor before = logits();
  for (int step = 0; step < 5; ++step) {
    run.sharded->zero_grad();
    run.model->loss(batch, 1.0 / (4 * 31)).backward();
    run.update->step(1);
  }
  return (logits() - before).abs().mean().item<double>();
}

// The coordinate check of Yang, Hu et al. (appendix D.1).
TEST(Mup, LogitsDoNotGrowWithTheWidth) {
  for (const bool is_llama : {false, true}) {
    const auto change = [&](std::int64_t width, bool mup) {
      return change_of_logits(is_llama ? llama(width, mup) : gpt2(width, mup));
    };
    const double narrow = change(32, true), wide = change(256, true);
    EXPECT_LT(wide / narrow, 1.5) << wide << " " << narrow;
    EXPECT_GT(wide / narrow, 0.6) << wide << " " << narrow;
    EXPECT_GT(change(256, false) / change(32, false), 2);
  }
}

}  // namespace
}  // namespace tessera::train
