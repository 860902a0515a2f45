// Mixtures of experts as models: auxiliary losses, hooks for other modules, dividing the experts.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <tessera/architectures/tensor_names.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/config/sections/model_config.h>
#include <tessera/models/checkpoint_blocks.h>
#include <tessera/models/llama.h>
#include <tessera/models/load.h>
#include <tessera/models/lora.h>
#include <tessera/models/moe_mlp.h>
#include <tessera/models/overrides.h>
#include <tessera/models/tensor_plans.h>
#include <tessera/nn/nn.h>
#include <tests/error_of.h>
#include <tests/paths.h>

#include <map>
#include <string>
#include <vector>

namespace {

using namespace tessera;
using models::BalanceOptions;
using tessera::testing::error_of;
using Form = BalanceOptions::Form;

constexpr const char* families[] = {"mixtral", "qwen2_moe",  "qwen3_moe", "qwen3_moe_sparse_step",
                                    "olmoe",   "deepseek_v3"};

std::string folder_of(const std::string& name) { return tessera::testing::source_path("tests/fixtures/llama/") + name; }

std::shared_ptr<models::Llama> load(const std::string& name) {
  ModelConfig config;
  config.model_name_or_path = folder_of(name);
  return std::dynamic_pointer_cast<models::Llama>(models::load_model(config, 0));
}

at::Tensor tokens() {
  at::manual_seed(7);
  return at::randint(0, 97, {3, 14}, at::kLong);
}

std::map<std::string, at::Tensor> gradients(models::Llama& model) {
  model.train();
  for (const at::Tensor& p : model.parameters()) p.mutable_grad().reset();
  const at::Tensor ids = tokens();
  model.loss(ids, ids, 1.0 / 39).backward();
  std::map<std::string, at::Tensor> all;
  for (const auto& item : model.named_parameters())
    if (item.value().requires_grad()) all[item.key()] = item.value().grad();
  return all;
}

void balance(models::LanguageModel& model, Form form, double auxiliary, double z = 0) {
  BalanceOptions options = model.balance();
  options.form = form;
  options.auxiliary = auxiliary;
  options.z = z;
  model.set_balance(options);
}

std::vector<std::shared_ptr<models::MoeMlp>> sparse_layers(const models::Llama& model) {
  std::vector<std::shared_ptr<models::MoeMlp>> found;
  for (const auto& layer : model.model->layers)
    if (auto moe = std::dynamic_pointer_cast<models::MoeMlp>(layer->mlp)) found.push_back(moe);
  return found;
}

/// The routings of one forward pass, layer by layer.
std::vector<nn::Routing> routings(models::Llama& model, const at::Tensor& ids) {
  std::vector<nn::Routing> all;
  model.set_experts([&](const at::Tensor& x, const nn::Routing& routing, const nn::ExpertWeights& weights,
                        const nn::Meanwhile& meanwhile) {
    all.push_back(routing);
    return nn::experts(x, routing, weights, meanwhile);
  });
  const at::NoGradGuard no_grad;
  model.logits(ids);
  model.set_experts({});
  return all;
}

TEST(MoeModels, WhichLayersHaveExperts) {
  const auto indexes = [](const char* name) {
    std::vector<std::int64_t> all;
    for (const auto& moe : sparse_layers(*load(name))) all.push_back(moe->index);
    return all;
  };
  EXPECT_EQ(indexes("mixtral"), (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(indexes("qwen2_moe"), (std::vector<std::int64_t>{0, 2}));
  EXPECT_EQ(indexes("qwen3_moe_sparse_step"), (std::vector<std::int64_t>{1}));
}

TEST(MoeModels, TheFormsOfTheBalancingLoss) {
  const auto model = load("qwen2_moe");
  const at::Tensor ids = tokens();
  const std::vector<nn::Routing> chosen = routings(*model, ids);
  ASSERT_EQ(chosen.size(), 2u);
  std::map<Form, double> wanted;
  for (const nn::Routing& r : chosen) {
    wanted[Form::micro_batch] += nn::switch_loss(r.probabilities, r.ids).item<double>();
    wanted[Form::sequence] +=
        nn::sequence_loss(r.probabilities.view({3, 14, -1}), r.ids.view({3, 14, -1})).item<double>();
    wanted[Form::global_batch] += nn::switch_loss(r.probabilities, r.ids).item<double>();
  }
  std::vector<at::Tensor> probabilities, experts;
  double z = 0;
  for (const nn::Routing& r : chosen) {
    probabilities.push_back(r.probabilities);
    experts.push_back(r.ids);
    z += nn::z_loss(r.logits).item<double>();
  }
  wanted[Form::layers_together] = nn::load_balancing_loss(probabilities, experts).item<double>();
  const auto plain = gradients(*model);
  for (const auto& [form, value] : wanted) {
    model->take_router_statistics();
    balance(*model, form, 0.3, 0.2);
    const auto with = gradients(*model);
    const models::RouterStatistics routers = model->take_router_statistics();
    EXPECT_NEAR(routers.auxiliary_loss / value, 1, 1e-6);
    EXPECT_NEAR(routers.z_loss / z, 1, 1e-6);
    EXPECT_GT((with.at("model.layers.0.mlp.gate.weight") - plain.at("model.layers.0.mlp.gate.weight"))
                  .abs()
                  .max()
                  .item<double>(),
              1e-5);
    // The loss itself is still the cross-entropy: the last norm and the head come after all routers.
    EXPECT_TRUE(at::equal(with.at("model.norm.weight"), plain.at("model.norm.weight")));
  }
}

TEST(MoeModels, GlobalBatchCountsWhatWasBefore) {
  const auto model = load("mixtral");
  model->train();
  balance(*model, Form::global_batch, 0.1);
  int asked = 0;
  BalanceOptions options = model->balance();
  options.sum = [&](const at::Tensor& counts) {
    ++asked;
    return counts * 3;  // as if two more processes had the same counts
  };
  model->set_balance(options);
  const at::Tensor ids = tokens();
  model->loss(ids, ids, 1).backward();
  const double first = model->take_router_statistics().auxiliary_loss;
  EXPECT_EQ(asked, 2);
  model->loss(ids, ids, 1).backward();
  model->loss(ids.flip(1), ids, 1).backward();
  const models::RouterStatistics both = model->take_router_statistics();
  const auto chosen = routings(*model, ids), flipped = routings(*model, ids.flip(1));
  double wanted = 0;
  for (std::size_t layer = 0; layer < chosen.size(); ++layer) {
    const at::Tensor counts = nn::expert_counts(chosen[layer].ids, 6) + nn::expert_counts(flipped[layer].ids, 6);
    wanted += nn::switch_loss(flipped[layer].probabilities, counts, 2.0 * 3 * 14 * 2).item<double>();
  }
  EXPECT_NEAR((both.auxiliary_loss - first) / wanted, 1, 1e-6);
}

TEST(MoeModels, StagesCannotHaveTheLossOfAllLayersTogether) {
  const auto model = load("mixtral");
  model->train();
  data::Batch batch;
  batch.ids = batch.labels = tokens();
  const layout::StagePart first{.embeddings = true, .end = false, .first_block = 0, .blocks = 1};
  balance(*model, Form::layers_together, 0.1);
  EXPECT_NE(error_of([&] { model->run_stage(batch, first, {}, 1); }).find("router_aux_loss_form"), std::string::npos);
}

TEST(MoeModels, StagesTogetherAreTheModel) {
  for (const char* name : {"mixtral", "qwen2_moe"}) {
    const auto whole = load(name), divided = load(name);
    for (const auto& model : {whole, divided}) balance(*model, Form::sequence, 0.3, 0.1);
    const auto wanted = gradients(*whole);
    divided->train();
    data::Batch batch;
    batch.ids = batch.labels = tokens();
    const std::int64_t blocks = divided->shape().blocks;
    const layout::StagePart first{.embeddings = true, .end = false, .first_block = 0, .blocks = 1};
    const layout::StagePart second{.embeddings = false, .end = true, .first_block = 1, .blocks = blocks - 1};
    const at::Tensor middle = divided->run_stage(batch, first, {}, 1.0 / 39);
    const at::Tensor input = middle.detach().requires_grad_();
    divided->run_stage(batch, second, input, 1.0 / 39).backward();
    middle.backward(input.grad());
    for (const auto& item : divided->named_parameters())
      EXPECT_TRUE(at::allclose(item.value().grad(), wanted.at(item.key()), 1e-5, 1e-8)) << item.key();
  }
}

TEST(MoeModels, CheckpointingChangesNothing) {
  for (const char* name : families)
    for (const auto part : {parallel::CheckpointPart::block, parallel::CheckpointPart::mlp}) {
      const auto model = load(name);
      balance(*model, Form::layers_together, 0.3, 0.1);
      const auto wanted = gradients(*model);
      const models::RouterStatistics once = model->take_router_statistics();
      parallel::CheckpointPlan plan;
      plan.part = part;
      models::checkpoint_blocks(*model, plan);
      const auto got = gradients(*model);
      const models::RouterStatistics again = model->take_router_statistics();
      for (const auto& [parameter, gradient] : wanted)
        EXPECT_TRUE(at::equal(got.at(parameter), gradient)) << name << " " << parameter;
      EXPECT_EQ(again.auxiliary_loss, once.auxiliary_loss);
      for (const auto& [block, load] : once.load) EXPECT_TRUE(at::equal(again.load.at(block), load)) << block;
    }
}

/// Two models with half of the experts each, whose results are added: equivalent to expert parallelism over tokens that
/// all ranks hold.
TEST(MoeModels, SharedOutExperts) {
  for (const char* name : families) {
    const auto whole = load(name);
    const auto wanted = gradients(*whole);
    const at::Tensor logits = whole->logits(tokens()).detach();
    const std::int64_t experts = whole->balance().experts, half = experts / 2;
    const auto low = load(name), high = load(name);
    low->keep_experts(0, half);
    high->keep_experts(half, experts - half);
    EXPECT_EQ(low->elsewhere_elements() + high->elsewhere_elements(),
              static_cast<std::int64_t>(sparse_layers(*whole).size()) * experts * 3 *
                  sparse_layers(*whole)[0]->experts[0]->gate->weight.numel());
    const auto partial = [](const at::Tensor& x, const nn::Routing& routing, const nn::ExpertWeights& w) {
      const auto held = static_cast<std::int64_t>(w.gate.size());
      const at::Tensor own = routing.ids - w.first;
      const at::Tensor here = own.ge(0).logical_and(own.lt(held));
      const nn::Permutation p = nn::permutation_of(own.masked_fill(here.logical_not(), -1), held);
      return nn::unpermute(nn::grouped_mlp(nn::permute(x, p), p.counts, w.gate, w.up, w.down), p, routing.weights);
    };
    // `low` runs; at each layer the other model's experts add their results.
    auto others = sparse_layers(*high);
    std::size_t layer = 0;
    low->set_experts(
        [&](const at::Tensor& x, const nn::Routing& routing, const nn::ExpertWeights& w, const nn::Meanwhile&) {
          const nn::ExpertWeights rest = others[layer++ % others.size()]->weights();
          EXPECT_EQ(w.first, 0);
          EXPECT_EQ(rest.first, half);
          return partial(x, routing, w) + partial(x, routing, rest);
        });
    EXPECT_TRUE(at::allclose(low->logits(tokens()).detach(), logits, 1e-4, 1e-5)) << name;
    gradients(*low);
    std::size_t compared = 0;
    for (const auto& model : {low, high})
      for (const auto& item : model->named_parameters()) {
        if (!item.value().grad().defined()) continue;  // `low` has the parameter, too
        EXPECT_TRUE(at::allclose(item.value().grad(), wanted.at(item.key()), 1e-4, 1e-6)) << item.key();
        ++compared;
      }
    EXPECT_EQ(compared, wanted.size());
    low->set_experts({});
    EXPECT_THROW(low->logits(tokens()), Error) << "no function computes the other experts";
  }
}

TEST(MoeModels, FoldersAreReadByHalves) {
  const auto model = load("mixtral"), half = load("mixtral");
  half->keep_experts(3, 2);
  for (const at::Tensor& p : half->parameters()) p.detach().zero_();
  models::load_weights(*half, folder_of("mixtral"));
  const auto all = model->named_parameters();
  for (const auto& item : half->named_parameters()) EXPECT_TRUE(at::equal(item.value(), all[item.key()])) << item.key();
  EXPECT_TRUE(half->lies_elsewhere("model.layers.1.block_sparse_moe.experts.5.w2.weight"));
  EXPECT_FALSE(half->lies_elsewhere("model.layers.1.block_sparse_moe.experts.4.w2.weight"));
  EXPECT_THROW(half->keep_experts(5, 2), Error);
  EXPECT_NE(error_of([] { load("llama")->keep_experts(0, 1); }).find("no experts"), std::string::npos);
}

TEST(MoeModels, AdaptersGoOnAttention) {
  for (const char* name : families) {
    const auto model = load(name);
    const at::Tensor before = model->logits(tokens()).detach();
    models::apply_lora(*model, {}, 1);
    for (const auto& [parameter, tensor] : models::lora_state(*model))
      EXPECT_NE(parameter.find("self_attn"), std::string::npos) << parameter;
    EXPECT_TRUE(at::equal(model->logits(tokens()), before)) << "adapters start at zero";
    for (const auto& [parameter, gradient] : gradients(*model))
      EXPECT_TRUE(gradient.defined() && parameter.find("lora") != std::string::npos) << parameter;
    models::LoraConfig on_experts;
    on_experts.target_modules = {name == std::string("mixtral") ? "w1" : "experts.0.gate_proj"};
    EXPECT_NE(error_of([&] { models::apply_lora(*load(name), on_experts, 1); }).find("not a linear map"),
              std::string::npos);
  }
}

TEST(MoeModels, FlopOfActiveExpertsOnly) {
  const auto model = load("qwen3_moe");  // 2 layers x 32, heads 4 x 16 and 2 x 16; 2 of 8 experts x 16; vocabulary 97
  const double attention = 32 * (64 + 32 + 32 + 64), active = 2 * 3 * 32 * 16, router = 32 * 8;
  const double wanted = 6 * (2 * (attention + active + router) + 97 * 32) + 12 * 2 * 64 * 10;
  EXPECT_EQ(model->flops_per_token(10), wanted);
  EXPECT_EQ(model->shape().inner, 2 * 16);
}

TEST(MoeModels, ThePlanForTensorParallelism) {
  for (const char* name : families) {
    const auto model = load(name);
    const layout::TensorPlan plan = models::tensor_plan(*model);
    std::map<std::string, layout::TensorStyle> styles;
    for (const auto& item : model->named_parameters())
      for (const layout::TensorRule& rule : plan)
        if (layout::matches(rule.pattern, item.key())) {
          styles.emplace(item.key(), rule.style);
          break;
        }
    EXPECT_EQ(styles.size(), model->named_parameters().size()) << name << ": some parameter has no rule";
    for (const auto& [parameter, style] : styles) {
      if (parameter.find(".experts.") == std::string::npos) continue;
      const bool down = parameter.ends_with("down_proj.weight") || parameter.ends_with("w2.weight");
      EXPECT_EQ(style, down ? layout::TensorStyle::rowwise : layout::TensorStyle::colwise) << parameter;
    }
  }
}

TEST(MoeModels, LayersThatPredictFurtherTokensAreLeftAside) {
  const Value config = load("deepseek_v3")->hf_config();  // 3 layers
  EXPECT_EQ(architectures::llama_tensor_name("model.layers.2.mlp.gate.weight", config),
            "model.layers.2.mlp.gate.weight");
  EXPECT_EQ(architectures::llama_tensor_name("model.layers.3.eh_proj.weight", config), "");
  EXPECT_EQ(architectures::llama_tensor_name("model.layers.30.mlp.gate.weight", config), "");
}

TEST(MoeModels, FromScratchByTheRuleOfTransformers) {
  for (const auto& item :
       models::make_language_model(read_json(folder_of("deepseek_v3") + "/config.json"), 3)->named_parameters())
    if (item.key().ends_with("e_score_correction_bias")) {
      EXPECT_TRUE(item.value().eq(0).all().item<bool>()) << item.key();
    }
  const Value config = read_json(folder_of("qwen2_moe") + "/config.json");
  const auto model = models::make_language_model(config, 3);
  for (const auto& item : model->named_parameters()) {
    const at::Tensor& p = item.value();
    if (p.dim() == 1) {
      EXPECT_TRUE(p.eq(item.key().ends_with("bias") ? 0 : 1).all().item<bool>()) << item.key();
    } else if (p.numel() > 400) {
      EXPECT_NEAR(p.std().item<double>(), 0.02, 0.003) << item.key();
    }
  }
  const auto parameters = model->named_parameters();
  EXPECT_FALSE(at::equal(parameters["model.layers.0.mlp.experts.0.up_proj.weight"],
                         parameters["model.layers.0.mlp.experts.1.up_proj.weight"]));
}

TEST(MoeModels, WhatContradictsItselfIsRefused) {
  const auto error = [](const char* name, const std::string& overrides) {
    return error_of([&] {
      models::make_language_model(models::with_overrides(read_json(folder_of(name) + "/config.json"), overrides), 1);
    });
  };
  EXPECT_NE(error("mixtral", "num_experts_per_tok=7").find("\"num_experts_per_tok\" is 7, of 6 experts"),
            std::string::npos);
  EXPECT_NE(error("qwen2_moe", "router_aux_loss_coef=-1,output_router_logits=true").find("must not be negative"),
            std::string::npos);
  Value listed = read_json(folder_of("qwen3_moe") + "/config.json");
  EXPECT_NE(error("qwen3_moe", "hidden_act=gelu").find("hidden_act \"gelu\" is not supported"), std::string::npos);
}

TEST(MoeModels, ConfigurationsAskForTheLoss) {
  const Value config =
      models::with_overrides(read_json(folder_of("olmoe") + "/config.json"), "output_router_logits=true");
  EXPECT_EQ(models::make_language_model(config, 1)->balance().auxiliary, 0.05);
  EXPECT_EQ(load("olmoe")->balance().auxiliary, 0);
}

}  // namespace
