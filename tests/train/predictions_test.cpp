// Multi-token prediction in a run: the settings that reach the model, what is refused, and the sums of a logging
// window.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/config/sections/optimization_config.h>
#include <tessera/models/load.h>
#include <tessera/models/overrides.h>
#include <tessera/train/features/predictions.h>
#include <tests/error_of.h>
#include <tests/train/one_rank.h>

#include <string>

namespace {

using namespace tessera;
using namespace tessera::train;
using tessera::testing::error_of;

std::shared_ptr<models::LanguageModel> make(const std::string& more) {
  return models::make_language_model(
      models::with_overrides(models::preset("llama-tiny"),
                             "num_hidden_layers=1,hidden_size=32,num_attention_heads=4,num_key_value_heads=2,"
                             "intermediate_size=48,vocab_size=61,max_position_embeddings=24" +
                                 more),
      1);
}

RunGroups groups_of_one() {
  RunGroups groups;
  groups.mesh = layout::parse_mesh("dp=1", 1);
  groups.data = groups.tensor = one_rank();
  return groups;
}

TEST(Predictions, SettingsReachTheModelOrAreRefused) {
  const RunGroups groups = groups_of_one();
  OptimizationConfig config;
  const auto plain = make(""), model = make(",mtp_num_layers=1");
  EXPECT_EQ(error_of([&] { set_up_predictions(*plain, config, groups); }), "");
  EXPECT_EQ(error_of([&] { set_up_predictions(*model, config, groups); }), "");
  config.mtp_loss_scaling_factor = 0.3;
  EXPECT_NE(error_of([&] { set_up_predictions(*plain, config, groups); }).find("--config_overrides mtp_num_layers=1"),
            std::string::npos);
  config.preference_loss = PreferenceLoss::sigmoid;
  EXPECT_NE(error_of([&] { set_up_predictions(*model, config, groups); }).find("remove --preference_loss"),
            std::string::npos);
  config.mtp_loss_scaling_factor = 0;
  EXPECT_EQ(error_of([&] { set_up_predictions(*model, config, groups); }), "");
  for (const auto& item : model->named_parameters())
    EXPECT_EQ(item.value().requires_grad(), !item.key().starts_with("model.layers.1.")) << item.key();
}

TEST(Predictions, AWindowAddsUpAndBeginsAnew) {
  const auto model = make(",mtp_num_layers=2");
  PredictionWindow window;
  EXPECT_EQ(window.take(*model), (std::vector<double>{0, 0})) << "every rank reports equally many numbers";
  const auto loss = [](double value) { return at::scalar_tensor(value, at::kFloat); };
  window.add({loss(2), loss(4)}, 0.5);
  window.add({loss(1), loss(2)}, 2);
  EXPECT_EQ(window.take(*model), (std::vector<double>{3, 6}));
  EXPECT_EQ(window.take(*model), (std::vector<double>{0, 0}));
}

}  // namespace
