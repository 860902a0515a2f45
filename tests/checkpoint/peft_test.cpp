#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/checkpoint/choose.h>
#include <tessera/checkpoint/peft.h>
#include <tessera/checkpoint/tensor_bridge.h>
#include <tessera/format/safetensors/safetensors.h>
#include <tests/checkpoint/saved.h>
#include <tests/error_of.h>

#include <cmath>

using namespace tessera;
using namespace tessera::checkpoint;

namespace {

class PeftFolder : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return path_join(folder_.path(), name); }

  /// The smallest configuration with one additional member, on its own line (the third).
  void write_config(const std::string& member = "\"lora_dropout\": 0") {
    write_file_atomically(at("adapter_config.json"),
                          "{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 8,\n"
                          "\"target_modules\": [\"q\", \"v\"],\n" +
                              member + "}");
  }
  std::string config_error() const {
    try {
      read_adapter_config(folder_.path());
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }
  std::string weights_error(const NamedTensors& tensors) const {
    std::vector<format::TensorSource> sources;
    for (const auto& [name, tensor] : tensors) sources.push_back(tensor_source(name, tensor));
    format::write_safetensors(at("adapter_model.safetensors"), sources);
    try {
      read_adapter_weights(folder_.path());
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }

  TemporaryFolder folder_;
};

TEST_F(PeftFolder, WrittenAndReadBack) {
  LoraConfig config;
  config.r = 3;
  config.alpha = 7.5;
  config.dropout = 0.25;
  config.target_modules = {"c_attn", "mlp.c_proj"};
  config.rank_stabilized = true;
  config.fan_in_fan_out = true;
  config.base_model = "/models/base";
  const NamedTensors adapters = {{"h.0.c_attn.lora_A.weight", at::rand({3, 8})},
                                 {"h.0.c_attn.lora_B.weight", at::rand({5, 3})}};
  EXPECT_FALSE(is_adapter_folder(folder_.path()));
  write_adapter_folder(folder_.path(), adapters, config, nullptr);
  EXPECT_TRUE(is_adapter_folder(folder_.path()));

  const LoraConfig read = read_adapter_config(folder_.path());
  EXPECT_EQ(read.r, 3);
  EXPECT_EQ(read.alpha, 7.5);
  EXPECT_EQ(read.dropout, 0.25);
  EXPECT_EQ(read.target_modules, config.target_modules);
  EXPECT_TRUE(read.rank_stabilized);
  EXPECT_TRUE(read.fan_in_fan_out);
  EXPECT_EQ(read.base_model, "/models/base");
  EXPECT_DOUBLE_EQ(read.scale_of("q_proj"), 7.5 / std::sqrt(3.0));
  const NamedTensors back = read_adapter_weights(folder_.path());
  ASSERT_EQ(back.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(back[i].first, adapters[i].first);
    EXPECT_TRUE(at::equal(back[i].second, adapters[i].second));
  }
  const format::SafetensorsFile file(at("adapter_model.safetensors"));
  EXPECT_NE(file.find("base_model.model.h.0.c_attn.lora_A.weight"), nullptr);
}

TEST_F(PeftFolder, ModulesThatAreTrainedWholeAreThereByTheirOwnNames) {
  LoraConfig config;
  config.target_modules = {"q"};
  config.modules_to_save = {"lm_head", "embed.tokens"};
  const NamedTensors tensors = {{"model.embed.tokens.weight", at::rand({5, 2})},
                                {"model.lm_head.inner.bias", at::rand({5})},
                                {"q.lora_A.weight", at::rand({8, 2})}};
  write_adapter_folder(folder_.path(), tensors, config, nullptr);
  EXPECT_EQ(read_adapter_config(folder_.path()).modules_to_save, config.modules_to_save);
  EXPECT_EQ(adapter_names(folder_.path()).size(), 3u);
  EXPECT_EQ(read_json(at("adapter_config.json")).at("modules_to_save").items().size(), 2u);
  for (const char* other : {"model.tokens.weight", "my_lm_head.weight", "lm_head"}) {
    write_adapter_folder(folder_.path(), {{"q.lora_A.weight", at::rand({8, 2})}, {other, at::rand({5})}}, config,
                         nullptr);
    const std::string error = tessera::testing::error_of<InputError>([&] { read_adapter_weights(folder_.path()); });
    EXPECT_NE(error.find(concat("unexpected tensor base_model.model.", other)), std::string::npos) << error;
    EXPECT_NE(error.find("(lm_head, embed.tokens)"), std::string::npos) << error;
  }
}

TEST_F(PeftFolder, WhatABaseIsPutTogetherOfStandsBeside) {
  LoraConfig config;
  config.target_modules = {"q"};
  config.composition =
      Value::make_object({{"model_type", Value::of("llava")}, {"mm_vision_tower", Value::of("/clip")}});
  const NamedTensors adapters = {{"q.lora_A.weight", at::rand({8, 2})}};
  write_adapter_folder(folder_.path(), adapters, config, nullptr);
  EXPECT_EQ(dump_json(read_adapter_config(folder_.path()).composition), dump_json(config.composition));
  // Axolotl and others leave the base's own config.json in the folder.
  write_file_atomically(at("config.json"), R"({"model_type": "llama"})");
  EXPECT_TRUE(read_adapter_config(folder_.path()).composition.is_null());
}

TEST_F(PeftFolder, IntegralAlphaIsWrittenAsAnInteger) {
  LoraConfig config;
  config.alpha = 16;
  config.target_modules = {"q"};
  write_adapter_folder(folder_.path(), {{"q.lora_A.weight", at::zeros({8, 2})}}, config, nullptr);
  EXPECT_EQ(read_json(at("adapter_config.json")).at("lora_alpha").kind(), Value::Kind::integer);
  EXPECT_FALSE(read_json(at("adapter_config.json")).contains("use_rslora"))
      << "older versions of PEFT do not support it";
}

TEST_F(PeftFolder, FeaturesThatAreNotSupportedAreNamedWithTheirPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {"\"use_dora\": true", "use_dora: weight-decomposed adapters (DoRA) is not supported"},
      {"\"modules_to_save\": \"lm_head\"", "modules_to_save must be a list"},
      {"\"modules_to_save\": [\"\"]", "modules_to_save has an empty name"},
      {"\"rank_pattern\": {\"q\": 0}", "r is 0; it must be from 1"},
      {"\"rank_pattern\": [8]", "rank_pattern must be an object"},
      {"\"rank_pattern\": {\"q(\": 8}", "is not a regular expression"},
      {"\"alpha_pattern\": {\"q\": -8}", "lora_alpha is -8"},
      {"\"bias\": \"lora_only\"", "bias \"lora_only\": trained biases are not supported"},
      {"\"lora_bias\": true", "lora_bias: a bias on lora_B"},
      {"\"init_lora_weights\": \"pissa\"", "init_lora_weights \"pissa\" changes the base model's weights"},
      {"\"task_type\": \"SEQ_CLS\"", "task_type \"SEQ_CLS\" is not supported"},
      {"\"trainable_token_indices\": [3]", "trainable_token_indices: trained token embeddings"},
      {"\"brand_new_feature\": 5", "brand_new_feature is not a setting of LoRA adapters that this program knows"},
      {"\"lora_dropout\": 1", "lora_dropout is 1; it must be at least 0 and below 1"},
      {"\"use_rslora\": 1", "expected true or false"},
  };
  for (const auto& [member, text] : cases) {
    write_config(member);
    const std::string error = config_error();
    EXPECT_EQ(error.rfind(concat(at("adapter_config.json"), ":3:"), 0), 0u) << error;
    EXPECT_NE(error.find(text), std::string::npos) << text << " in " << error;
  }
}

TEST_F(PeftFolder, WhatChangesNothingIsAccepted) {
  for (const char* member :
       {"\"use_dora\": false", "\"rank_pattern\": {}", "\"modules_to_save\": null", "\"bias\": \"none\"",
        "\"brand_new_feature\": null", "\"megatron_core\": \"megatron.core\"", "\"init_lora_weights\": \"gaussian\"",
        "\"task_type\": null"}) {
    write_config(member);
    EXPECT_EQ(config_error(), "") << member;
  }
}

TEST_F(PeftFolder, BadValues) {
  for (const auto& [text, part] :
       {std::pair<const char*, const char*>{"{\"peft_type\": \"IA3\"}", "peft_type \"IA3\""},
        {"{\"r\": 4}", "peft_type"},
        {"{\"peft_type\": \"LORA\", \"r\": 0, \"lora_alpha\": 8}", "r is 0"},
        {"{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": -1}", "lora_alpha is -1"},
        {"{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 1, \"target_modules\": []}", "target_modules is empty"},
        {"[1]", "must be a JSON object"},
        {"{\"peft_type\": ", "adapter_config.json:1"}}) {
    write_file_atomically(at("adapter_config.json"), text);
    EXPECT_NE(config_error().find(part), std::string::npos) << config_error();
  }
}

TEST_F(PeftFolder, TargetsThatOnlyPeftEvaluatesComeFromTheWeights) {
  write_config();
  EXPECT_EQ(read_adapter_config(folder_.path()).target_modules, (std::vector<std::string>{"q", "v"}));
  write_config("\"layers_to_transform\": [0, 2]");
  EXPECT_TRUE(read_adapter_config(folder_.path()).targets_from_weights);
  EXPECT_TRUE(read_adapter_config(folder_.path()).target_modules.empty());
}

TEST_F(PeftFolder, AdaptersThatTheConfigurationDoesNotMeanAreNamed) {
  const auto error = [&](const std::string& members, const std::string& module) {
    write_file_atomically(at("adapter_config.json"),
                          concat(R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8, )", members, "}"));
    return tessera::testing::error_of(
        [&] { require_targets(folder_.path(), {module + ".lora_A.weight", module + ".lora_B.weight"}); });
  };
  const std::string q = "model.layers.3.self_attn.q_proj";
  EXPECT_EQ(error(R"("layers_to_transform": [0, 3])", q), "");
  EXPECT_EQ(error(R"("layers_to_transform": 3)", q), "");
  EXPECT_NE(error(R"("layers_to_transform": [0, 2])", q).find("layers_to_transform excludes " + q), std::string::npos);
  EXPECT_EQ(error(R"("target_modules": ".*layers\\.[0-3]\\..*q_proj")", q), "");
  EXPECT_NE(error(R"("target_modules": ".*layers\\.[0-2]\\..*q_proj")", q).find("target_modules does not match " + q),
            std::string::npos);
}

TEST_F(PeftFolder, TensorsThatAreNoAdapters) {
  write_config();
  const std::string a = "base_model.model.q.lora_A.weight";
  EXPECT_EQ(weights_error({{a, at::zeros({2, 2})}}), "");
  const std::string error = weights_error({{a, at::zeros({2, 2})},
                                           {"base_model.model.wte.lora_embedding_A", at::zeros({2})},
                                           {"q.lora_A.weight", at::zeros({2})}});
  EXPECT_NE(error.find("unexpected tensor base_model.model.wte.lora_embedding_A"), std::string::npos) << error;
  EXPECT_NE(error.find("unexpected tensor q.lora_A.weight"), std::string::npos) << error;
  EXPECT_NE(weights_error({{a, at::zeros({2, 2}, at::kLong)}}).find("is I64, which is not a floating-point type"),
            std::string::npos);
  EXPECT_NE(weights_error({}).find("contains no adapters"), std::string::npos);
  remove_tree(at("adapter_model.safetensors"));
  write_file_atomically(at("adapter_model.bin"), "x");
  try {
    read_adapter_weights(folder_.path());
    ADD_FAILURE();
  } catch (const InputError& e) {
    EXPECT_NE(std::string(e.what()).find("pickle"), std::string::npos) << e.what();
  }
}

TEST_F(PeftFolder, TheBaseIsSoughtBesideTheAdaptersFirst) {
  LoraConfig config;
  config.base_model = "../base";
  make_folders(at("adapters"));
  make_folders(at("base"));
  EXPECT_EQ(base_model_folder(at("adapters"), config), at("base"));
  config.base_model = at("base");
  EXPECT_EQ(base_model_folder(at("adapters"), config), at("base"));
  config.base_model = "";
  EXPECT_THROW(base_model_folder(at("adapters"), config), InputError);
}

TEST_F(PeftFolder, CheckpointsOfAdaptersAreWhole) {
  LoraConfig config;
  config.target_modules = {"q"};
  config.base_model = "/base";
  RunState state;
  state.step = 3;
  const at::Tensor moment = at::rand({8, 2});
  const NamedTensors adapters = {{"q.lora_A.weight", at::rand({8, 2})}, {"q.lora_B.weight", at::rand({2, 8})}};
  const std::string saved =
      save_step_folder(folder_.path(), state, {{"exp_avg.q.lora_A.weight", moment}}, 0, [&](const std::string& folder) {
        WrittenFiles files = write_adapter_settings(folder, config, nullptr);
        TensorSources sources = sources_of(adapters);
        for (auto& source : sources) source.name = kAdapterPrefix + source.name;
        files.push_back(write_tensors_file(folder, kAdapterWeightsFile, std::move(sources)));
        return files;
      });
  EXPECT_EQ(saved, at("checkpoint-3"));
  verify_checkpoint(saved);
  EXPECT_EQ(choose_newest(step_folders(folder_.path()), {}), saved);
  EXPECT_FALSE(path_exists(path_join(saved, "model.safetensors"))) << "the base is not stored again";
  EXPECT_TRUE(at::equal(read_state(saved, "exp_avg.q.lora_A.weight"), moment));
  const std::string weights = path_join(saved, "adapter_model.safetensors");
  std::string bytes = read_file(weights);
  bytes.back() ^= 1;
  write_file_atomically(weights, bytes);
  EXPECT_THROW(verify_checkpoint(saved), InputError);
}

}  // namespace
