// Features of `tessera train` with our models under tessera::Trainer: --fp8_format, --compression_training,
// --progressive_layer_drop, --gradient_checkpointing; also --save_only_model and --full_determinism.
#include <tests/error_of.h>
#include <tests/faces/trainer_options.h>

#include <tessera/config/sections/model_config.h>
#include <tessera/models/load.h>

namespace {

using namespace tessera;
using namespace tessera::testing;
using Words = std::vector<std::string>;

constexpr std::int64_t kRows = 24, kLength = 8, kWords = 61;

Words operator+(Words all, const Words& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TrainerOptions language_model(Words flags) {
  ModelConfig config;
  config.config_name = "llama-tiny";
  config.config_overrides = concat("vocab_size=", kWords);
  flags.insert(flags.end(), {"--max_steps=6", "--per_device_train_batch_size=2", "--save_steps=3"});
  TrainerOptions made = options(flags);
  made.model = models::load_language_model(config, 3);
  made.loss = loss_of<models::LanguageModel>([](models::LanguageModel& model, const TensorBatch& batch) {
    const at::Tensor logits = model.forward(batch[0]);
    return at::cross_entropy_loss(logits.slice(1, 0, -1).reshape({-1, kWords}), batch[0].slice(1, 1).reshape({-1}));
  });
  made.outputs = {};
  made.train_dataset = tensor_rows({(at::arange(kRows * kLength) * 7 % kWords).view({kRows, kLength})});
  return made;
}

struct Trained {
  double loss = 0;
  Weights weights;
};
Trained train(const Words& flags) {
  Trainer trainer(language_model(flags));
  const double loss = trainer.train().training_loss;
  return {loss, weights_of(trainer.training().sharded())};
}

const Words features[] = {{"--fp8_format=hybrid", "--fp8_amax_history_len=4", "--fp8_recipe=delayed"},
                          {"--compression_training", R"({"weight_quantization": {"shared_parameters": {"enabled": true,
      "quantize_weight_in_forward": true, "schedule_offset": 1}, "different_groups": {"wq1": {"params":
      {"start_bits": 3, "target_bits": 3, "quantization_period": 0}, "modules": ["mlp.up_proj", "mlp.down_proj"]}}}})"},
                          {"--progressive_layer_drop", R"({"enabled": true, "theta": 0.2, "gamma": 5})"}};

class TrainerFeatures : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(All, TrainerFeatures, ::testing::Values(1, 2));

TEST_P(TrainerFeatures, act_on_our_models_and_a_resumed_run_has_their_bits) {
  const TemporaryFolder folder;
  run_ranks(GetParam(), [&](comm::World&) {
    const Trained plain = train({});
    for (const Words& feature : features) {
      const std::string out = path_join(folder.path(), feature[0].substr(2));
      Words flags = feature;
      flags.push_back("--output_dir=" + out);
      const Trained whole = train(flags);
      EXPECT_NE(whole.loss, plain.loss) << feature[0] << " does nothing";
      flags.push_back("--resume_from_checkpoint=" + out + "/checkpoint-3");
      expect_same_bits(train(flags).weights, whole.weights, feature[0]);
    }
  });
}

TEST_P(TrainerFeatures, recomputed_activations_change_no_bit) {
  run_ranks(GetParam(), [&](comm::World&) {
    const Trained plain = train({}), recomputed = train({"--gradient_checkpointing=true"});
    expect_same_bits(recomputed.weights, plain.weights, "gradient_checkpointing");
    Trainer trainer(language_model({"--gradient_checkpointing=true"}));
    EXPECT_NE(trainer.training().checkpointing(), nullptr);
  });
}

TEST(TrainerFeaturesOnce, are_refused_of_a_module_of_ones_own) {
  run_ranks(1, [&](comm::World&) {
    for (const Words& feature : features) {
      const std::string says = error_of([&] { Trainer(options(feature)); });
      const std::string name = feature[0].substr(2, feature[0].find('=') - 2);
      EXPECT_NE(says.find(name), std::string::npos) << says;
    }
  });
}

TEST(TrainerFeaturesOnce, follow_the_rules_of_the_program) {
  run_ranks(1, [&](comm::World&) {
    const auto says = [](const Words& flags) { return error_of([&] { Trainer(language_model(flags)); }); };
    const std::string both = says({"--fp8_format=hybrid", "--fp16=true"});
    EXPECT_NE(both.find("contradicts --fp16"), std::string::npos) << both;
    EXPECT_NE(says(features[0] + features[2]).find("contradicts --fp8_format"), std::string::npos);
    EXPECT_NE(says({"--compression_training", R"({"layer_reduction": {"enabled": true, "keep_number_layer": 1,
                    "teacher_layer": [0]}})"})
                  .find("layer_reduction"),
              std::string::npos);
  });
}

TEST(TrainerFeaturesOnce, checkpoints_of_the_model_alone_hold_no_optimizer_and_are_not_resumed) {
  const TemporaryFolder folder;
  run_ranks(1, [&](comm::World&) {
    const Words flags = {"--save_only_model=true", "--output_dir=" + folder.path()};
    train(flags);
    EXPECT_TRUE(path_exists(path_join(folder.path(), "checkpoint-3/model.safetensors")));
    EXPECT_FALSE(path_exists(path_join(folder.path(), "checkpoint-3/optimizer.safetensors")));
    Words again = flags;
    again.push_back("--resume_from_checkpoint=" + path_join(folder.path(), "checkpoint-3"));
    const std::string says = error_of<Error>([&] { train(again); });
    EXPECT_NE(says.find("it contains only the model (--save_only_model)"), std::string::npos) << says;
  });
}

TEST(TrainerFeaturesOnce, full_determinism_reduces_in_fixed_order) {
  run_ranks(2, [&](comm::World&) {
    Trainer trainer(language_model({"--full_determinism=true"}));
    EXPECT_GT(trainer.training().sharded().options().logical_shards, 0);
    EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
    at::globalContext().setDeterministicAlgorithms(false, false);
  });
}

}  // namespace
