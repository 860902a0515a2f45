// The program itself, without tensors: dispatch, help, and bad command lines (exit code 2, one message, nothing
// written).

#include <sys/stat.h>

#include <gtest/gtest.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>
#include <tessera/launch/agent/process.h>
#include <tests/paths.h>
#include <tests/stopwatch.h>

namespace tessera {
namespace {

const launch::Environment no_job = {
    {"RANK", {}},        {"WORLD_SIZE", {}},  {"LOCAL_RANK", {}},      {"LOCAL_WORLD_SIZE", {}},
    {"MASTER_ADDR", {}}, {"MASTER_PORT", {}}, {"TESSERA_BACKEND", {}}, {"TESSERA_LAUNCHER", {}}};

launch::Captured tessera(const std::vector<std::string>& arguments, launch::Environment environment = no_job) {
  std::vector<std::string> command = {tessera::testing::build_path("tessera")};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return launch::run_and_capture(command, environment, tessera::testing::patience(120));
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Program, HelpAndVersion) {
  for (const char* word : {"--help", "-h", "help"}) {
    const auto run = tessera({word});
    EXPECT_EQ(run.exit_code, 0);
    for (const char* command : {"train", "generate", "launch", "tokenizer", "tokenize", "env", "test"})
      EXPECT_TRUE(contains(run.out, command)) << command;
    EXPECT_EQ(run.err, "");
  }
  EXPECT_EQ(tessera({"--version"}).out, "tessera " TESSERA_VERSION "\n");
  const auto help = tessera({"train", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_TRUE(contains(help.out, "--learning_rate"));
}

TEST(Program, UnknownAndMissingCommands) {
  const auto unknown = tessera({"trian"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_EQ(unknown.err, "tessera: unknown command 'trian'; did you mean 'train'?\n");
  const auto far = tessera({"xyzzy"});
  EXPECT_EQ(far.exit_code, 2);
  EXPECT_TRUE(contains(far.err, "the commands are train, "));
  const auto missing = tessera({});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_TRUE(contains(missing.err, "usage: tessera COMMAND"));
}

TEST(Program, PrintConfig) {
  const auto run = tessera({"train", "--print-config", "--learning_rate", "1e-3", "--num_processes", "2"});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.err, "");
  const Value value = parse_json(run.out, "stdout");
  EXPECT_EQ(value.at("optimization").at("learning_rate").at("value").as_real(), 1e-3);
  EXPECT_EQ(value.at("optimization").at("learning_rate").at("origin").as_string(), "--learning_rate");
  EXPECT_EQ(tessera({"train", "--print_config", "--max_steps", "x"}).exit_code, 2);
  const auto warned = tessera({"train", "--print_config", "--eval_steps", "5", "--use_peft"});
  EXPECT_EQ(parse_json(warned.out, "stdout").at("output").at("eval_strategy").at("value").as_string(), "no");
  EXPECT_TRUE(contains(warned.err, "warning: --eval_steps has no effect: --eval_strategy is no")) << warned.err;
  EXPECT_TRUE(contains(warned.err, "warning: --use_peft is TRL's")) << warned.err;
}

// Settings that training refuses are not printed as valid, and settings that were not given are not reported as
// missing.
TEST(Program, OneVerdictOnWhatIsSaid) {
  for (const std::vector<std::string>& said : {std::vector<std::string>{"--fp16", "--bf16"},
                                               {"--train_file", "/absent/a.txt"},
                                               {"--model_name_or_path", "/absent"}}) {
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"train", "--print_config"}, {"config", "show"}}) {
      std::vector<std::string> words = command;
      words.insert(words.end(), said.begin(), said.end());
      const auto run = tessera(words);
      EXPECT_EQ(run.exit_code, 2) << said[0];
      EXPECT_EQ(run.out, "") << said[0];
    }
  }
  const TemporaryFolder folder;
  const std::string file = path_join(folder.path(), "run.yaml");
  write_file_atomically(file, "bf16: true\nfp16: true\n");
  EXPECT_EQ(tessera({"config", "check", file}).exit_code, 2);
  write_file_atomically(file, "train_file: /absent/a.txt\n");
  EXPECT_EQ(tessera({"config", "check", file}).exit_code, 2);
  write_file_atomically(file, "learning_rate: 1e-4\nlearning_rate: 2e-4\n");  // the last one wins
  EXPECT_EQ(tessera({"config", "check", file}).exit_code, 0);
  EXPECT_EQ(tessera({"train", "--print_config", file}).exit_code, 0);
}

TEST(Program, ConfigCheckKnowsTheProcesses) {
  const TemporaryFolder folder;
  const std::string file = path_join(folder.path(), "ds.json");
  write_file_atomically(file, R"({"train_batch_size": 16, "gradient_accumulation_steps": 2})");
  EXPECT_EQ(tessera({"config", "check", file, "--num_processes", "2"}).exit_code, 0);
  const auto run = tessera({"config", "check", file, "--num_processes", "3"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_TRUE(contains(run.out, "with 3 processes")) << run.out;
  write_file_atomically(path_join(folder.path(), "empty.yaml"), "");
  EXPECT_TRUE(contains(tessera({"config", "check", path_join(folder.path(), "empty.yaml")}).out, "the file is empty"));
}

TEST(Program, PrintConfigUnderTheLauncher) {
  const auto run = tessera({"launch", "--num_processes", "2", tessera::testing::build_path("tessera"), "train",
                            "--print_config", "--learning_rate", "1e-3"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(contains(run.out, "\"learning_rate\"")) << run.out;
}

TEST(Program, BadInputIsOneMessageAndNothingIsWritten) {
  const TemporaryFolder folder;
  const std::string out = path_join(folder.path(), "out");
  for (const char* processes : {"1", "3"}) {  // without launching, and before any rank starts
    const auto run =
        tessera({"train", "--config_name", "gpt2-tiny", "--train_file", path_join(folder.path(), "none.txt"),
                 "--output_dir", out, "--num_processes", processes, "--lerning_rate", "1"});
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_EQ(run.out, "");
    EXPECT_EQ(run.err, concat("tessera: 2 problems in the configuration:\n  unknown flag --lerning_rate; did you mean "
                              "--learning_rate?\n  --train_file ",
                              path_join(folder.path(), "none.txt"), ": no such file\n"));
    EXPECT_TRUE(list_folder(folder.path()).empty());
  }
}

TEST(Program, OfALaunchedJobOnlyRankZeroSpeaks) {
  for (const char* rank : {"0", "1"}) {
    const launch::Environment job = {{"RANK", rank},
                                     {"WORLD_SIZE", "2"},
                                     {"LOCAL_RANK", rank},
                                     {"LOCAL_WORLD_SIZE", "2"},
                                     {"MASTER_ADDR", "127.0.0.1"},
                                     {"MASTER_PORT", "29511"}};
    const auto run = tessera({"train", std::string("--local-rank=") + rank}, job);
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_EQ(contains(run.err, "--train_file is missing"), *rank == '0') << run.err;
    EXPECT_EQ(run.err.empty(), *rank == '1') << run.err;
  }
}

TEST(Program, TheJobsSizeMustBeTheOneAskedFor) {
  const TemporaryFolder folder;
  const std::string text = path_join(folder.path(), "text.txt"), out = path_join(folder.path(), "out");
  write_file_atomically(text, "text\n");
  const launch::Environment job = {{"RANK", "0"},
                                   {"WORLD_SIZE", "2"},
                                   {"LOCAL_RANK", "0"},
                                   {"LOCAL_WORLD_SIZE", "2"},
                                   {"MASTER_ADDR", "127.0.0.1"},
                                   {"MASTER_PORT", "29511"},
                                   {"TESSERA_LAUNCHER", {}}};
  const auto run = tessera(
      {"train", "--config_name", "gpt2-tiny", "--train_file", text, "--output_dir", out, "--num_processes", "4"}, job);
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_TRUE(
      contains(run.err, "--num_processes is 4 but RANK=0, WORLD_SIZE=2 in the environment make this one of 2 proc"))
      << run.err;
}

// A copy of the program alone in a folder cannot find the tensor part.
TEST(Program, AMissingTensorPartIsNamed) {
  const TemporaryFolder folder;
  const std::string lonely = path_join(folder.path(), "tessera");
  write_file_atomically(lonely, read_file(tessera::testing::build_path("tessera")));
  ASSERT_EQ(::chmod(lonely.c_str(), 0755), 0);
  const auto run = launch::run_and_capture({lonely, "env"}, {{"LD_LIBRARY_PATH", tessera::testing::build_path()}},
                                           tessera::testing::patience(120));
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_TRUE(contains(run.err, "libtessera_tool.so does not exist: build it with `make build`")) << run.err;
}

}  // namespace
}  // namespace tessera
