// The examples as a user starts them: parallel_3d, data x tensor x pipeline parallelism from one Hugging Face folder to
// another, and pipeline, a user's own module.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/launch/agent/process.h>
#include <tessera/models/load.h>
#include <tests/paths.h>
#include <tests/stopwatch.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace {

using namespace tessera;
using Words = std::vector<std::string>;

const Words program = {tessera::testing::build_path("tessera")};

Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// The numbers after `what` in every step.
std::vector<double> numbers(const launch::Captured& run, const std::string& what) {
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  std::vector<double> found;
  for (const std::string& line : split(run.out, '\n'))
    if (const auto at = line.find(what); line.find("step ") != std::string::npos && at != std::string::npos)
      found.push_back(std::strtod(line.c_str() + at + what.size(), nullptr));
  EXPECT_EQ(found.size(), 10u) << run.out << run.err;
  return found;
}

TEST(Parallel3d, from_folder_to_folder_as_one_process) {
  const TemporaryFolder folder;
  const std::string text = path_join(folder.path(), "text.txt"), base = path_join(folder.path(), "base");
  std::string lines;
  for (int i = 0; i < 100; ++i) lines += concat("tile ", i * i % 13, " of the mosaic.\n");
  write_file_atomically(text, lines);
  const auto run = [](const Words& command) {
    return launch::run_and_capture(command, {{"OMP_NUM_THREADS", "1"}}, tessera::testing::patience(120));
  };
  for (const char* tied : {"false", "true"}) {
    const auto made =
        run(program + Words{"train", "--config_name", "llama-tiny", "--config_overrides",
                            concat("num_hidden_layers=4,hidden_size=32,num_attention_heads=4,"
                                   "num_key_value_heads=2,head_dim=8,intermediate_size=48,vocab_size=257,"
                                   "max_position_embeddings=16,tie_word_embeddings=",
                                   tied),
                            "--train_file", text, "--max_steps", "1", "--output_dir", base, "--overwrite_output_dir"});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    const Words example = {tessera::testing::build_path("examples/parallel_3d"), base};
    const std::string one = path_join(folder.path(), "one"), all = path_join(folder.path(), "all");
    const auto alone = run(example + Words{one, "--mesh=pp=1", "--schedule=1f1b"});
    const auto three =
        run(program + Words{"launch", "--num_processes", "8"} + example + Words{all, "--mesh=pp=2,dp=2,tp=2"});
    for (const char* what : {"loss ", "norm "}) {
      const std::vector<double> wanted = numbers(alone, what), got = numbers(three, what);
      ASSERT_EQ(got.size(), wanted.size());
      for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 2e-5 * wanted[i]) << what << i;
    }
    const auto a = models::load_folder(one), b = models::load_folder(all);
    const auto parameters = b->named_parameters();
    for (const auto& item : a->named_parameters())
      EXPECT_LE((item.value() - parameters[item.key()]).norm().item<double>(),
                1e-4 * item.value().norm().item<double>())
          << item.key();
  }
}

TEST(PipelineExample, EqualsOneProcess) {
  const auto losses = [](const Words& command) {
    const auto run = launch::run_and_capture(command, {{"OMP_NUM_THREADS", "1"}}, tessera::testing::patience(120));
    EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
    std::vector<double> found;
    for (const std::string& line : split(run.out, '\n'))
      if (const auto at = line.find("loss "); at != std::string::npos)
        found.push_back(std::strtod(line.c_str() + at + 5, nullptr));
    EXPECT_EQ(found.size(), 4u) << run.out << run.err;
    return found;
  };
  const std::string example = tessera::testing::build_path("examples/pipeline");
  const auto launched = [&](const char* ranks) { return program + Words{"launch", "--num_processes", ranks, example}; };
  const std::vector<double> alone = losses({example, "--pp=1"});
  ASSERT_EQ(alone.size(), 4u);
  EXPECT_LT(alone[3], 0.5 * alone[0]);
  for (const Words& command :
       {launched("2") + Words{"--schedule=zbv"}, launched("4") + Words{"--pp=2", "--strategy=full_shard"}}) {
    const std::vector<double> got = losses(command);
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], alone[i], 2e-4);
  }
}

}  // namespace
