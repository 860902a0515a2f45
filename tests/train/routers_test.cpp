// A run's report on its routers.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/config/sections/optimization_config.h>
#include <tessera/models/load.h>
#include <tessera/parallel/fully_shard.h>
#include <tessera/train/features/routers.h>
#include <tests/error_of.h>
#include <tests/paths.h>
#include <tests/train/one_rank.h>

namespace tessera::train {
namespace {

using Form = models::BalanceOptions::Form;
using tessera::testing::error_of;

std::shared_ptr<models::LanguageModel> load(const std::string& name) {
  return models::load_language_folder(tessera::testing::source_path("tests/fixtures/llama/") + name);
}

RunGroups groups_of_one(int pipeline_ranks = 1) {
  RunGroups groups;
  groups.mesh = layout::parse_mesh(concat("pp=", pipeline_ranks), pipeline_ranks);
  groups.data = groups.tensor = one_rank();
  return groups;
}

TEST(Routers, SettingsReachTheModel) {
  const auto model = load("mixtral");
  OptimizationConfig config;
  set_up_routers(*model, config, groups_of_one());
  EXPECT_EQ(model->balance().auxiliary, 0) << "config.json does not ask for it";
  EXPECT_EQ(model->balance().form, Form::layers_together);
  config.router_aux_loss_coef = 0.25;
  config.router_z_loss_coef = 0.125;
  for (const auto& [word, form] : {std::pair(RouterLossForm::layers_together, Form::layers_together),
                                   {RouterLossForm::micro_batch, Form::micro_batch},
                                   {RouterLossForm::sequence, Form::sequence},
                                   {RouterLossForm::global_batch, Form::global_batch}}) {
    config.router_aux_loss_form = word;
    set_up_routers(*model, config, groups_of_one());
    EXPECT_EQ(model->balance().form, form);
    EXPECT_EQ(model->balance().auxiliary, 0.25);
    EXPECT_EQ(model->balance().z, 0.125);
    EXPECT_FALSE(model->balance().sum_tokens || model->balance().sum) << "no other rank has tokens";
  }
}

TEST(Routers, WhatDoesNotFitIsRefused) {
  OptimizationConfig config;
  config.router_aux_loss_coef = 0.25;
  EXPECT_NE(error_of([&] { set_up_routers(*load("llama"), config, groups_of_one()); }).find("has no routers"),
            std::string::npos);
  EXPECT_NE(error_of([&] { set_up_routers(*load("mixtral"), config, groups_of_one(2)); }).find("micro_batch"),
            std::string::npos);
  config.router_aux_loss_form = RouterLossForm::micro_batch;
  EXPECT_EQ(error_of([&] { set_up_routers(*load("mixtral"), config, groups_of_one(2)); }), "");
}

TEST(Routers, BiasesMoveTowardsAnEvenLoad) {
  for (const char* strategy : {"ddp", "full_shard"}) {
    const auto model = load("deepseek_v3");
    const std::string name = "model.layers.1.mlp.gate.e_score_correction_bias";
    const std::string other = "model.layers.2.mlp.gate.weight";
    const auto parameters = model->named_parameters();
    const at::Tensor before = parameters[name].clone(), untouched = parameters[other].clone();
    Sharded sharded(*model, {.strategy = strategy, .group = one_rank()});
    models::RouterStatistics step;
    step.load[1] = at::tensor({6, 1, 1, 1, 1, 1, 3, 2}, at::kDouble);  // the mean is 2
    update_router_biases(*model, sharded, step, 0, groups_of_one());
    update_router_biases(*model, sharded, step, 0.25, groups_of_one());
    const Sharded::Unsharded whole(sharded, {});
    EXPECT_TRUE(at::allclose(parameters[name] - before, at::tensor({-1, 1, 1, 1, 1, 1, -1, 0}, at::kFloat) * 0.25))
        << strategy;
    EXPECT_TRUE(at::equal(parameters[other], untouched));
  }
  OptimizationConfig config;
  config.router_bias_update_rate = 1e-3;
  EXPECT_EQ(error_of([&] { set_up_routers(*load("deepseek_v3"), config, groups_of_one()); }), "");
  EXPECT_NE(error_of([&] { set_up_routers(*load("olmoe"), config, groups_of_one()); }).find("router_aux_loss_coef"),
            std::string::npos);
}

TEST(Routers, OfAWindow) {
  const auto model = load("qwen2_moe");  // layer 1 is dense
  RouterWindow window;
  models::RouterStatistics step;
  step.passes = 2;
  step.auxiliary_loss = 3;
  step.z_loss = 1;
  step.load[0] = at::tensor({4, 0, 2, 2, 0, 0, 0, 0}, at::kDouble);
  step.load[2] = at::ones({8}, at::kDouble);
  window.end_step(step);
  window.end_step(step);
  const RouterMetrics metrics = window.close(*model, one_rank(), groups_of_one(), 4);
  EXPECT_DOUBLE_EQ(metrics.auxiliary_loss, 1.5);
  EXPECT_DOUBLE_EQ(metrics.z_loss, 0.5);
  ASSERT_EQ(metrics.load.size(), 2u);
  EXPECT_EQ(metrics.load.at(0), (std::vector<double>{0.5, 0, 0.25, 0.25, 0, 0, 0, 0}));
  EXPECT_DOUBLE_EQ(metrics.imbalance(), 4);
  EXPECT_DOUBLE_EQ(metrics.mean_load()[0], (0.5 + 0.125) / 2);
  EXPECT_TRUE(window.close(*model, one_rank(), groups_of_one(), 4).load.empty()) << "it starts over";
  StepMetrics line;
  EXPECT_FALSE(to_json(line).contains("expert_load")) << "no experts, so no line about them";
  line.routers = metrics;
  EXPECT_EQ(to_json(line).at("expert_load").items().size(), 8u);
  EXPECT_DOUBLE_EQ(to_json(line).at("expert_imbalance").as_real(), 4);
  EXPECT_DOUBLE_EQ(to_json(line).at("router_aux_loss").as_real(), 1.5);
}

}  // namespace
}  // namespace tessera::train
