// From settings to the planner's model, which must match the model that `tessera train` builds from them.

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/config/core/run_config.h>
#include <tessera/plan/from_config.h>
#include <tessera/plan/presets.h>
#include <tessera/plan/search.h>

#include <gtest/gtest.h>

#include <tests/error_of.h>

namespace tessera::plan {
namespace {

TEST(PlanFromConfig, OverridesChangeWhatStartsFromScratch) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/config.json";
  write_file_atomically(file, dump_json(preset_config("llama-2-7b"), 2, 9));
  RunConfig config;
  config.model.config_overrides = "num_hidden_layers=3,hidden_size=2048";
  for (const std::string& name : {std::string("llama-3-8b"), file, folder.path()}) {
    config.model.config_name = name;
    const Model model = model_of(config);
    EXPECT_EQ(model.layers, 3) << name;
    EXPECT_EQ(model.hidden, 2048) << name;
    EXPECT_EQ(model.heads, 32) << name;
  }
  config.model.config_name = "gpt2-tiny";
  config.model.config_overrides = "n_layer=5";
  EXPECT_EQ(model_of(config).layers, 5);
  config.model.config_overrides = "n_layers=5";
  EXPECT_NE(testing::error_of<InputError>([&] { model_of(config); }).find("n_layers"), std::string::npos);
}

/// The sizes of LLaVA-1.5's decoder and tower, each in a folder, and the settings that combine them.
ModelConfig composed(const std::string& folder) {
  for (const char* part : {"/language", "/tower"}) make_folders(folder + part);
  write_file_atomically(folder + "/language/config.json", dump_json(preset_config("llama-2-7b"), 2, 9));
  write_file_atomically(folder + "/tower/config.json",
                        R"({"model_type": "clip", "vision_config": {"hidden_size": 1024, "intermediate_size": 4096,
                           "num_hidden_layers": 24, "num_attention_heads": 16, "image_size": 336, "patch_size": 14}})");
  ModelConfig config;
  config.model_name_or_path = folder + "/language";
  config.vision_tower = folder + "/tower";
  return config;
}

TEST(PlanFromConfig, ATowerMakesAModelThatSeesImages) {
  const TemporaryFolder folder;
  RunConfig config;
  config.model = composed(folder.path());
  config.model.mm_projector_type = "mlp2x_gelu";
  config.model.mm_vision_select_layer = -2;
  const Model model = model_of(config);
  ASSERT_TRUE(model.vision);
  EXPECT_EQ(model.layers, 32);
  EXPECT_EQ(model.vision->tokens(), 576);
  EXPECT_EQ(model.vision->blocks, 23);
  // llava-hf/llava-1.5-7b-hf has 7,063,427,072 parameters, with 64 more rows in the embedding table and the head.
  EXPECT_EQ(parameter_count(model), 7063427072. - 2 * 64 * 4096);
  EXPECT_TRUE(model.trained && model.projector_trained);

  config.model.tune_mm_mlp_adapter = true;
  EXPECT_FALSE(model_of(config).trained);
  config.data.block_size = 1024;
  config.data.max_seq_length = 2048;
  EXPECT_EQ(plan_on(config, model, layout::Mesh{}, true).sequence, 2048) << "rows are examples";

  // The combined model may also be in one folder already.
  write_file_atomically(folder.path() + "/language/config.json", R"({"model_type": "llava"})");
  EXPECT_EQ(model_of(config).vision->tokens(), 576);
  write_file_atomically(folder.path() + "/language/adapter_config.json", "{}");
  EXPECT_NE(testing::error_of<InputError>([&] { model_of(config); }).find("LoRA adapters"), std::string::npos);
}

TEST(PlanFromConfig, AdaptersAreWhatTheSettingsSay) {
  RunConfig config;
  config.model.config_name = "llama-2-7b";
  EXPECT_FALSE(model_of(config).adapters);
  config.model.lora_r = 16;
  const auto trained = [&] {
    double sum = 0;
    for (const Tensor& tensor : tensors(model_of(config))) sum += tensor.trained ? tensor.numel() : 0;
    return sum;
  };
  EXPECT_EQ(trained(), 32. * 2 * 16 * 8192) << "q_proj and v_proj";
  config.model.lora_target_modules = "q_proj, mlp.down_proj";
  EXPECT_EQ(trained(), 32. * 16 * (8192 + 11008 + 4096));
  config.model.lora_target_modules = "all-linear";
  const double all = trained();
  EXPECT_EQ(all, 39976960.) << "as PEFT prints for Llama 2 7B";
  config.model.lora_target_modules = "all";
  EXPECT_EQ(trained(), all) << "as the trainer reads LLaMA-Factory's value";
  config.model.lora_modules_to_save = "lm_head";
  EXPECT_EQ(trained(), all + 32000. * 4096);
  EXPECT_TRUE(model_of(config).head_trained());
  config.model.lora_modules_to_save = "model.norm";
  EXPECT_EQ(trained(), all + 4096);
  EXPECT_FALSE(model_of(config).head_trained());

  const Model model = model_of(config);
  layout::Mesh mesh;
  EXPECT_EQ(plan_problem(model, plan_on(config, model, mesh, true)), "");
  mesh.sizes = {1, 1, 1, 1, 2};
  EXPECT_NE(plan_problem(model, plan_on(config, model, mesh, true)).find("tensor parallelism"), std::string::npos);
}

TEST(PlanFromConfig, AdaptersThatNobodyKnowsAreRefused) {
  const TemporaryFolder folder;
  const ModelConfig seeing = composed(folder.path());
  RunConfig config;
  config.model.lora_r = 16;
  const auto said = [&](const std::string& words) {
    return testing::error_of<InputError>([&] { model_of(config); }).find(words) != std::string::npos;
  };
  config.model.config_name = "llama-2-7b";
  config.model.lora_target_modules = "q_proj,c_attn";
  EXPECT_TRUE(said("'c_attn' matches no linear map"));
  config.model.lora_target_modules = "lm_head";
  EXPECT_TRUE(said("'lm_head' matches no linear map"));
  config.model.lora_target_modules = "layers.3.self_attn.q_proj";
  EXPECT_TRUE(said("selects a single block"));
  config.model.lora_target_modules.clear();
  config.model.model_name_or_path = seeing.model_name_or_path;
  config.model.vision_tower = seeing.vision_tower;
  EXPECT_TRUE(said("vision-language model"));
}

TEST(PlanFromConfig, AModelThatSeesImagesIsNotCut) {
  const TemporaryFolder folder;
  RunConfig config;
  config.model = composed(folder.path());
  Question q;
  q.model = model_of(config);
  q.cluster = parse_cluster("16xH100");
  q.global_batch = 64;
  q.sequence = 2048;
  for (const Candidate& c : search(q).best) EXPECT_EQ(c.plan.tp() * c.plan.cp() * c.plan.pp(), 1);
  q.tp = 2;
  EXPECT_NE(testing::error_of<InputError>([&] { search(q); }).find("vision-language model"), std::string::npos);
}

}  // namespace
}  // namespace tessera::plan
