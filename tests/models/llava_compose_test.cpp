// A vision-language model composed of a language model's folder, CLIP's and a projector, as LLaVA's arguments specify.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/checkpoint/tensor_bridge.h>
#include <tessera/config/sections/model_config.h>
#include <tessera/models/load.h>
#include <tessera/models/lora.h>
#include <tessera/models/vision/compose.h>
#include <tests/error_of.h>
#include <tests/paths.h>

#include <string>

namespace tessera::models {
namespace {

using checkpoint::NamedTensors;
using tessera::testing::error_of;

const std::string fixture = tessera::testing::source_path("tests/fixtures/llava_tiny");

/// The fixture's model split into folders "language" and "tower", and the projector under LLaVA's names.
class ComposeLlava : public ::testing::Test {
 protected:
  ComposeLlava() : whole_(std::dynamic_pointer_cast<Llava>(load_language_folder(fixture))) {
    for (const char* name : {"language", "tower", "projector", "saved"}) make_folders(at(name));
    write_part("language", "language_model.", "", whole_->language_model->hf_config());
    Value clip = Value::make_object(
        {{"model_type", Value::of("clip")}, {"vision_config", whole_->hf_config().at("vision_config")}});
    write_part("tower", "vision_tower.", "", clip);
    NamedTensors maps;
    for (const auto& [name, tensor] : tensors("multi_modal_projector.linear_"))
      maps.emplace_back(concat("model.mm_projector.", name.front() == '1' ? "0" : "2", name.substr(1)), tensor);
    checkpoint::write_hf_folder(at("projector"), maps, clip, nullptr);
    config_.model_name_or_path = at("language");
    config_.vision_tower = at("tower");
    config_.pretrain_mm_mlp_adapter = at("projector") + "/model.safetensors";
    config_.mm_projector_type = "mlp2x_gelu";
    config_.mm_vision_select_layer = -2;
  }

  std::string at(const std::string& name) const { return path_join(folder_.path(), name); }
  NamedTensors tensors(const std::string& prefix) const {
    NamedTensors all;
    for (const auto& item : whole_->named_parameters())
      if (item.key().starts_with(prefix)) all.emplace_back(item.key().substr(prefix.size()), item.value().detach());
    return all;
  }
  void write_part(const std::string& name, const std::string& prefix, const std::string& before, const Value& json) {
    NamedTensors all;
    for (const auto& [tensor_name, tensor] : tensors(prefix)) all.emplace_back(before + tensor_name, tensor);
    checkpoint::write_hf_folder(at(name), all, json, nullptr);
  }
  std::shared_ptr<Llava> compose() const { return std::dynamic_pointer_cast<Llava>(load_language_model(config_, 1)); }
  static at::Tensor loss(Llava& model) {
    const std::int64_t token = model.image_input()->token, count = model.image_input()->tokens,
                       side = model.image_input()->side;
    at::manual_seed(3);
    data::Batch batch;
    batch.ids = at::randint(20, {2, count + 6}, at::kLong);
    batch.ids.narrow(1, 2, count).fill_(token);
    batch.labels = batch.ids.masked_fill(batch.ids.eq(token), data::not_scored);
    batch.images = at::randn({2, 3, side, side});
    return model.loss(batch, 0.1);
  }

  TemporaryFolder folder_;
  std::shared_ptr<Llava> whole_;
  ModelConfig config_;
};

TEST_F(ComposeLlava, PartsGiveTheModelThatTheyWereTakenFrom) {
  const auto model = compose();
  EXPECT_EQ(loss(*model).item<double>(), loss(*whole_).item<double>());
  // The vocabulary has no row for the image token, whose id is the first one after it.
  EXPECT_EQ(model->image_input()->token, model->vocab_size());
  // The saved files can be read again as one folder.
  NamedTensors all;
  for (const auto& item : model->named_parameters()) all.emplace_back(item.key(), item.value().detach());
  checkpoint::write_hf_folder(at("saved"), all, model->hf_config(), nullptr);
  const auto again = std::dynamic_pointer_cast<Llava>(load_language_folder(at("saved")));
  EXPECT_EQ(loss(*again).item<double>(), loss(*whole_).item<double>());
}

TEST_F(ComposeLlava, TheProjectorOfAModelsFolderStandsForTheFileThatLlavaWrites) {
  config_.pretrain_mm_mlp_adapter = fixture + "/mm_projector.bin";
  EXPECT_EQ(loss(*compose()).item<double>(), loss(*whole_).item<double>());
  config_.pretrain_mm_mlp_adapter = at("nowhere/mm_projector.bin");
  EXPECT_NE(error_of<InputError>([&] { compose(); }).find("no such file"), std::string::npos);
  config_.pretrain_mm_mlp_adapter = at("tower");
  EXPECT_NE(error_of<InputError>([&] { compose(); }).find("contains no projector"), std::string::npos);
}

TEST_F(ComposeLlava, ProjectorsOfOtherWords) {
  config_.pretrain_mm_mlp_adapter.clear();
  config_.mm_projector_type = "linear";
  EXPECT_EQ(compose()->multi_modal_projector->maps.size(), 1U);
  config_.mm_projector_type = "mlp3x_gelu";
  const auto model = compose();
  EXPECT_EQ(model->multi_modal_projector->maps.size(), 3U);
  EXPECT_EQ(model->hf_config().at("mm_projector_type").as_string(), "mlp3x_gelu");
  EXPECT_GT(loss(*model).item<double>(), 0);
  config_.mm_projector_type = "mlp2x_gelu";
  EXPECT_EQ(compose()->hf_config().find("mm_projector_type"), nullptr);  // transformers' own
  config_.mm_projector_type = "resampler";
  EXPECT_NE(error_of<InputError>([&] { compose(); }).find("mlpNx_gelu"), std::string::npos);
}

TEST_F(ComposeLlava, LayersAndFeatures) {
  const double patches = loss(*compose()).item<double>();
  config_.mm_vision_select_layer = -1;
  EXPECT_NE(loss(*compose()).item<double>(), patches);
  config_.mm_vision_select_feature = "cls_patch";
  const auto model = compose();
  EXPECT_EQ(model->image_input()->tokens, whole_->image_input()->tokens + 1);
}

TEST_F(ComposeLlava, WhatIsTrained) {
  const auto trained = [&](const char* part, const ModelConfig& config) {
    const auto model = compose();
    choose_trained_parts(*model, config);
    int count = 0;
    for (const auto& item : model->named_parameters())
      count += item.key().starts_with(part) && item.value().requires_grad();
    return count;
  };
  ModelConfig config = config_;
  EXPECT_GT(trained("language_model.", config), 0);
  EXPECT_GT(trained("multi_modal_projector.", config), 0);
  EXPECT_EQ(trained("vision_tower.", config), 0);
  config.tune_mm_mlp_adapter = true;
  EXPECT_EQ(trained("language_model.", config), 0);
  EXPECT_EQ(trained("multi_modal_projector.", config), 4);
  config.tune_mm_mlp_adapter = false;
  config.freeze_mm_mlp_adapter = true;
  EXPECT_GT(trained("language_model.", config), 0);
  EXPECT_EQ(trained("multi_modal_projector.", config), 0);
  config.freeze_mm_mlp_adapter = false;
  config.freeze_backbone = true;
  EXPECT_EQ(trained("language_model.", config), 0);
  const auto text = load_language_folder(at("language"));
  EXPECT_NE(error_of<InputError>([&] { choose_trained_parts(*text, config); }).find("has no image input"),
            std::string::npos);
}

// A folder of adapters records the parts of its base and contains the projector that was trained with them.
TEST_F(ComposeLlava, AdaptersKeepTheProjector) {
  config_.lora_r = 4;
  config_.lora_target_modules = "q_proj,down_proj";
  config_.pretrain_mm_mlp_adapter.clear();
  const auto model = compose();
  LoraConfig lora = lora_config(config_);
  lora.base_model = at("language");
  lora.composition = describe_composition(model->hf_config(), config_);
  lora = apply_lora(*model, std::move(lora), 7);
  EXPECT_EQ(lora.modules_to_save, std::vector<std::string>{projector_module});
  for (const std::string& target : lora.target_modules)  // PEFT would also find them in the tower
    EXPECT_EQ(target.rfind("language_model.", 0), target.ends_with("down_proj") ? std::string::npos : 0) << target;
  {
    const at::NoGradGuard no_grad;
    for (auto& [name, tensor] : adapter_state(*model)) tensor.add_(0.01);
  }
  for (const auto& [name, tensor] : adapter_state(*model))
    EXPECT_EQ(name.find("vision_tower"), std::string::npos) << name;
  make_folders(at("adapters"));
  checkpoint::write_adapter_folder(at("adapters"), adapter_state(*model), lora, nullptr);
  const auto again = std::dynamic_pointer_cast<Llava>(load_language_folder(at("adapters")));
  EXPECT_TRUE(at::equal(loss(*again), loss(*model)));
  EXPECT_EQ(dump_json(loaded_lora_config(*again, at("adapters")).composition), dump_json(lora.composition));

  ModelConfig both = config_;
  both.model_name_or_path = at("adapters");
  EXPECT_TRUE(is_composed(both));
  EXPECT_NE(error_of<InputError>([&] { load_language_model(both, 0); }).find("remove --vision_tower"),
            std::string::npos);
  both.vision_tower.clear();
  EXPECT_TRUE(is_composed(both));
  std::string weights_folder = "?";
  const auto deferred = load_model_deferred(both, 0, weights_folder);
  EXPECT_EQ(weights_folder, "");
  load_adapters(*deferred, lora, at("adapters"));
  EXPECT_TRUE(at::equal(loss(dynamic_cast<Llava&>(*deferred)), loss(*model)));
  both.model_name_or_path = at("language");
  EXPECT_FALSE(is_composed(both));
}

// LLaVA's scripts for custom tasks name both the model and its tower.
TEST_F(ComposeLlava, AFolderThatSeesImagesKeepsItsProjector) {
  config_.model_name_or_path = fixture;
  config_.pretrain_mm_mlp_adapter.clear();
  EXPECT_TRUE(at::equal(loss(*compose()), loss(*whole_)));
  {
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : whole_->vision_tower->parameters()) parameter.add_(0.01);
  }
  write_part("tower", "vision_tower.", "", read_json(at("tower") + "/config.json"));
  EXPECT_TRUE(at::equal(loss(*compose()), loss(*whole_)));
}

// Flags and the tower's files apply only while a model is composed; a trained model has its own settings.
TEST_F(ComposeLlava, AFolderThatSeesImagesSaysHow) {
  const auto write_mean = [&](const char* folder, double mean) {
    write_file_atomically(at(folder) + "/preprocessor_config.json", concat("{\"image_mean\": [", mean, ", 0.5, 0.5]}"));
  };
  const auto mean = [&] { return compose()->image_input()->mean[0]; };
  const auto described = [&](const char* key) { return describe_composition(compose()->hf_config(), config_).at(key); };
  write_part("saved", "", "", whole_->hf_config());
  config_.pretrain_mm_mlp_adapter.clear();
  config_.mm_projector_type = "linear";
  config_.mm_vision_select_layer = -1;
  config_.mm_vision_select_feature = "cls_patch";

  config_.model_name_or_path = at("saved");
  write_mean("tower", 0.25);
  EXPECT_FLOAT_EQ(mean(), 0.25F);
  write_mean("saved", 0.75);
  EXPECT_FLOAT_EQ(mean(), 0.75F);
  EXPECT_EQ(described("mm_projector_type").as_string(), "mlp2x_gelu");
  EXPECT_EQ(described("mm_vision_select_layer").as_int(), -2);
  EXPECT_EQ(described("mm_vision_select_feature").as_string(), "patch");

  config_.model_name_or_path = at("language");
  write_mean("language", 0.75);
  EXPECT_FLOAT_EQ(mean(), 0.25F);
  EXPECT_EQ(described("mm_projector_type").as_string(), "linear");
  EXPECT_EQ(described("mm_vision_select_layer").as_int(), -1);
  EXPECT_EQ(described("mm_vision_select_feature").as_string(), "cls_patch");
}

TEST_F(ComposeLlava, WhatDoesNotFitIsNamed) {
  config_.vision_tower = at("nowhere");
  EXPECT_NE(error_of<InputError>([&] { compose(); }).find("no such folder"), std::string::npos);
  config_.vision_tower = at("language");
  EXPECT_FALSE(error_of<InputError>([&] { compose(); }).empty());
}

}  // namespace
}  // namespace tessera::models
