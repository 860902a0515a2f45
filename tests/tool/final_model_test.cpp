// A run's final model replaces an older one: whatever fails, one of the two is left intact.

#include "program.h"

#include <tests/small_disk.h>

#include <cstring>
#include <filesystem>

namespace tessera::testing {
namespace {

class FinalModel : public ToolTest {
 protected:
  FinalModel() {
    const auto run = tessera(training("base", batch(6, 1, 2) + Strings{"--save_strategy", "no"}));
    EXPECT_EQ(run.exit_code, 0) << run.err;
  }
  Strings finetuning(const std::string& output, const Strings& more = {}) const {
    return Strings{"train",        "--model_name_or_path",
                   at("base"),     "--train_file",
                   at("text.txt"), "--block_size",
                   "32",           "--save_strategy",
                   "no",           "--report_to",
                   "none",         "--overwrite_output_dir",
                   "--output_dir", output} +
           batch(3, 1, 2) + more;
  }
  Strings adapters(const std::string& output, const Strings& more = {}) const {
    return finetuning(output, Strings{"--lora_r", "4"} + more);
  }
  /// The files of a full model or of adapters, by name.
  static std::map<std::string, std::string> model_files(const std::string& folder) {
    std::map<std::string, std::string> files;
    for (const std::string& name : list_folder(folder))
      if (name.starts_with("model") || name.starts_with("adapter") || name.starts_with("token") ||
          name.ends_with("config.json"))
        files[name] = is_directory(path_join(folder, name)) ? "a folder" : read_file(path_join(folder, name));
    return files;
  }
};

TEST_F(FinalModel, AFullDiskDoesNotCostTheOlderModel) {
  const SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "needs root (mount a tmpfs): " << std::strerror(errno);
  const std::string out = disk.path("out");
  struct Case {
    Strings older, newer;
  };
  const Strings other = {"--seed", "7", "--learning_rate", "1e-2"},
                two = {"--num_processes", "2", "--fsdp", "full_shard"};
  const Strings large = {"--lora_r", "128", "--lora_target_modules", "all-linear"};
  const Case cases[] = {{finetuning(out), finetuning(out, other)},
                        {finetuning(out), finetuning(out, other + two)},
                        {finetuning(out, large), finetuning(out, large + other + Strings{"--lora_alpha", "32"})},
                        {finetuning(out), finetuning(out, large + other)},
                        {finetuning(out, large), finetuning(out, other)}};
  std::map<Strings, std::string> trained;  // results of runs from which cases start
  for (const Case& c : cases) {
    remove_tree(out);
    std::string& kept = trained[c.older];
    if (kept.empty()) {
      const auto run = tessera(c.older);
      ASSERT_EQ(run.exit_code, 0) << run.err;
      kept = at(concat("older", trained.size()));
      std::filesystem::copy(out, kept, std::filesystem::copy_options::recursive);
    } else {
      std::filesystem::copy(kept, out, std::filesystem::copy_options::recursive);
    }
    const auto before = model_files(out);
    for (const char* name : {"report.html", "metrics.jsonl"})
      remove_tree(path_join(out, name));  // their removal would free space
    disk.fill(16 << 10);                  // leaves enough space for small files
    const auto run = tessera(c.newer);
    disk.free_space();
    EXPECT_EQ(run.exit_code, 1) << run.err;
    EXPECT_TRUE(contains(run.err, "No space left on device")) << run.err;
    const auto after = model_files(out);
    ASSERT_EQ(after.size(), before.size());
    for (const auto& [name, bytes] : before) EXPECT_TRUE(after.contains(name) && after.at(name) == bytes) << name;
    EXPECT_EQ(tessera({"generate", "--model_name_or_path", out, "--prompt", "the", "--max_new_tokens", "2"}).exit_code,
              0);
  }
}

TEST_F(FinalModel, TakesThePlaceOfAModelOfAnotherKind) {
  const std::string out = at("out");
  ASSERT_EQ(tessera(finetuning(out)).exit_code, 0);
  for (const char* name : {"model-00001-of-00002.safetensors", "mine.safetensors"})
    write_file_atomically(path_join(out, name), name);
  const std::string list = path_join(out, ".tessera-files");  // an older model of a run was in parts
  write_file_atomically(list, read_file(list) + "model-00001-of-00002.safetensors\n");
  ASSERT_EQ(tessera(adapters(out)).exit_code, 0);
  EXPECT_TRUE(path_exists(at("out/adapter_config.json")) && path_exists(at("out/mine.safetensors")));
  for (const char* name : {"model.safetensors", "config.json", "model-00001-of-00002.safetensors", "model.tmp"})
    EXPECT_FALSE(path_exists(path_join(out, name))) << name;
  ASSERT_EQ(tessera(finetuning(out)).exit_code, 0);
  EXPECT_TRUE(path_exists(at("out/model.safetensors")) && path_exists(at("out/config.json")));
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors", "model.tmp"})
    EXPECT_FALSE(path_exists(path_join(out, name))) << name;
}

}  // namespace
}  // namespace tessera::testing
