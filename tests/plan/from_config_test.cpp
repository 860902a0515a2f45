// From settings to the model that is planned: the one that `tessera train` would build of them.

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/plan/from_config.h>
#include <tessera/plan/presets.h>

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

}  // namespace
}  // namespace tessera::plan
