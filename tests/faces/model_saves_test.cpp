// save_model over an older model: whatever fails, one of the two is left complete.
#include <tests/faces/mixed_model.h>
#include <tests/faces/trainer_options.h>
#include <tests/small_disk.h>

#include <tessera/base/file.h>
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/faces/accelerator.h>
#include <tessera/faces/deepspeed.h>
#include <tessera/format/safetensors/safetensors_index.h>

#include <cstring>

namespace {

using namespace tessera;
using namespace tessera::testing;

using Files = std::map<std::string, std::string>;

/// Every file of a folder, by name.
Files files_of(const std::string& folder) {
  Files files;
  for (const std::string& name : list_folder(folder)) files[name] = read_file(path_join(folder, name));
  return files;
}

std::vector<std::string> names_of(const Files& files) {
  std::vector<std::string> names;
  for (const auto& [name, bytes] : files) names.push_back(name);
  return names;
}

/// A face with a model that has different values in every save.
struct Face {
  std::function<void(double value)> fill;
  std::function<void(const std::string& folder)> save;
};

void fill_module(const Sharded& sharded, double value) {
  const at::NoGradGuard no_grad;
  for (at::Tensor& part : sharded.parameters()) part.fill_(value);
}

/// max_bytes: per file, for faces that let the user choose it.
Face make_face(const std::string& name, std::int64_t max_bytes) {
  const std::vector<std::string> arguments = {"--strategy=full_shard"};
  if (name == "accelerator") {
    const auto accelerator = std::make_shared<Accelerator>(AcceleratorOptions{.arguments = arguments});
    accelerator->prepare(make_mixed(7), OptimizerSettings{.lr = 0.01});
    return {[=](double value) { fill_module(accelerator->training().sharded(), value); },
            [=](const std::string& folder) { accelerator->save_model(folder, max_bytes); }};
  }
  if (name == "deepspeed") {
    const auto engine = std::make_shared<Engine<MixedModel>>(initialize(make_mixed(7), {.arguments = arguments}));
    return {[=](double value) { fill_module(engine->sharded(), value); },
            [=](const std::string& folder) { engine->save_model(folder); }};
  }
  const auto trainer = std::make_shared<Trainer>(options({"--strategy=full_shard", "--save_strategy=no"}));
  return {[=](double value) { fill_module(trainer->training().sharded(), value); },
          [=](const std::string& folder) { trainer->save_model(folder); }};
}

class ModelSaves : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Faces, ModelSaves, ::testing::Values("accelerator", "deepspeed", "trainer"));

TEST_P(ModelSaves, a_full_disk_does_not_cost_the_older_model) {
  const SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "needs root (mount a tmpfs): " << std::strerror(errno);
  const std::string out = disk.path("out");
  const auto outcomes = run_ranks_outcomes(2, [&](comm::World& world) {
    const Face face = make_face(GetParam(), 2000);
    face.fill(1);
    face.save(out);
    if (world.rank() == 0) {
      write_file_atomically(path_join(out, "notes.txt"), "of the user");
      make_folders(path_join(out, "checkpoint-7"));
      disk.fill();
    }
    world.group().barrier().wait();
    face.fill(2);
    face.save(out);
  });
  EXPECT_NE(outcomes[0].error.find("No space left on device"), std::string::npos) << outcomes[0].error;
  EXPECT_FALSE(outcomes[1].ok);
  remove_tree(path_join(out, "checkpoint-7"));
  const Files after = files_of(out);
  EXPECT_EQ(after.at("notes.txt"), "of the user");
  for (const std::string& name : names_of(after))
    EXPECT_TRUE(name == "notes.txt" || name.starts_with("model")) << name << " is left behind";
  const format::SafetensorsFolder model(out);  // index and files are consistent
  EXPECT_EQ(model.sharded(), GetParam() == std::string("accelerator"));
  std::size_t trained = 0;
  for (const auto& [name, value] : checkpoint::read_hf_weights(out)) {
    if (!name.ends_with("weight") && !name.ends_with("bias")) continue;
    if (name.starts_with("frozen")) continue;
    ++trained;
    EXPECT_TRUE(at::equal(value, at::ones_like(value))) << name << " is not the older model's";
  }
  EXPECT_GE(trained, 4u);
}

TEST(ModelSaves, a_new_model_replaces_all_files_of_the_older_one_and_no_other) {
  const TemporaryFolder folder;
  const std::string& out = folder.path();
  for (const char* name : {"model-best.safetensors", "config.json", "adapter_config.json"})
    write_file_atomically(path_join(out, name), name);
  make_folders(path_join(out, "model.tmp"));  // leftovers of a run that died while saving
  write_file_atomically(path_join(out, "model.tmp/model.safetensors"), "half");
  std::vector<Files> saved;
  run_ranks(2, [&](comm::World& world) {
    double value = 0;
    for (const std::int64_t most :
         {std::int64_t{1} << 30, std::int64_t{2000}, std::int64_t{4500}, std::int64_t{1} << 30}) {
      const Face face = make_face("accelerator", most);
      face.fill(++value);
      face.save(out);
      if (world.rank() > 0) continue;
      const Files files = files_of(out);
      for (const char* name : {"model-best.safetensors", "config.json", "adapter_config.json"})
        EXPECT_EQ(files.at(name), name) << "is not a file of the model that save_model writes";
      const format::SafetensorsFolder model(out);
      EXPECT_EQ(files.contains("model.safetensors"), most > 5000);
      EXPECT_EQ(files.contains("model.safetensors.index.json"), most < 5000);
      EXPECT_EQ(files.size(), 3 + model.files().size() + (model.sharded() ? 1 : 0)) << "files of an older model stay";
      for (const auto& [name, tensor] : checkpoint::read_hf_weights(out))
        if (name == "in.weight") {
          EXPECT_EQ(tensor.min().item<double>(), value);
        }
    }
  });
}

}  // namespace
