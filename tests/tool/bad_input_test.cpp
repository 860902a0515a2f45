#include "program.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace tessera::testing {
namespace {

/// Bad input ends the program with exit code 2 and a message that names the problem and its place; nothing is written.
class BadInputTest : public ToolTest {
 protected:
  void expect_refused(const Strings& arguments, const Strings& parts, const Strings& launcher = {}) const {
    const Strings before = files();
    const auto run = launch::run_and_capture(launcher + Strings{program} + arguments, {{"OMP_NUM_THREADS", "1"}},
                                             tessera::testing::patience(120));
    EXPECT_EQ(run.exit_code, 2) << run.err;
    for (const std::string& part : parts) EXPECT_TRUE(contains(run.err, part)) << "'" << part << "' in: " << run.err;
    // One message, whatever the number of ranks.
    int messages = 0;
    for (const std::string& line : split(run.err, '\n'))
      if (contains(line, "tessera: ")) ++messages;
    EXPECT_EQ(messages, 1) << run.err;
    EXPECT_EQ(files(), before) << "something was written";
  }

  /// A model folder as `tessera train` writes it.
  std::string make_model() const {
    const auto run = tessera(training("model", batch(4, 1, 1)));
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return at("model");
  }

  Strings fine_tuning(const Strings& more = {}) const {
    return Strings{"train", "--model_name_or_path", at("model"), "--train_file", at("text.txt"), "--block_size",
                   "32",    "--max_steps",          "1",         "--output_dir", at("out")} +
           more;
  }

  void replace_in_config(const std::string& from, const std::string& to) const {
    const std::string path = path_join(at("model"), "config.json");
    std::string text = read_file(path);
    const std::size_t place = text.find(from);
    ASSERT_NE(place, std::string::npos) << from << " in " << text;
    text.replace(place, from.size(), to);
    write_file_atomically(path, text);
  }
};

TEST_F(BadInputTest, UnknownFlag) {
  expect_refused(training("out", {"--lerning_rate", "1"}), {"--lerning_rate", "did you mean --learning_rate"});
}

TEST_F(BadInputTest, UnknownCommand) { expect_refused({"trian"}, {"unknown command 'trian'", "'train'"}); }

TEST_F(BadInputTest, ValueOutOfRange) {
  expect_refused(training("out", {"--weight_decay", "-1"}), {"--weight_decay", "-1"});
}

TEST_F(BadInputTest, AllProblemsAtOnce) {
  expect_refused({"train", "--config_name", "gpt2-tiny", "--train_file", at("missing.txt"), "--max_step", "3"},
                 {"missing.txt", "--max_steps", "--output_dir"});
}

TEST_F(BadInputTest, MissingTrainingFile) {
  Strings arguments = training("out");
  for (std::string& word : arguments)
    if (word == at("text.txt")) word = at("missing.txt");
  expect_refused(arguments, {"missing.txt", "--train_file"});
}

TEST_F(BadInputTest, MissingModelFolder) {
  expect_refused(
      {"train", "--model_name_or_path", at("nowhere"), "--train_file", at("text.txt"), "--output_dir", at("out")},
      {at("nowhere")});
}

TEST_F(BadInputTest, UnknownPreset) {
  expect_refused({"train", "--config_name", "gpt3", "--train_file", at("text.txt"), "--output_dir", at("out")},
                 {"gpt3", "gpt2-tiny"});
}

TEST_F(BadInputTest, TruncatedWeights) {
  const std::string path = path_join(make_model(), "model.safetensors");
  const std::string bytes = read_file(path);
  write_file_atomically(path, std::string_view(bytes).substr(0, bytes.size() - 100));
  for (const char* processes : {"1", "2"}) expect_refused(fine_tuning({"--num_processes", processes}), {path});
}

TEST_F(BadInputTest, CorruptWeights) {
  const std::string path = path_join(make_model(), "model.safetensors");
  std::string bytes = read_file(path);
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = '\x7f';  // the length of the header: 9e18 bytes
  write_file_atomically(path, bytes);
  for (const char* processes : {"1", "2"}) expect_refused(fine_tuning({"--num_processes", processes}), {path});
}

TEST_F(BadInputTest, NoWeights) {
  remove_tree(path_join(make_model(), "model.safetensors"));
  expect_refused(fine_tuning(), {at("model"), "model.safetensors"});
}

TEST_F(BadInputTest, ConfigWithoutANeededKey) {
  make_model();
  replace_in_config("\"n_layer\"", "\"n_lager\"");
  for (const char* processes : {"1", "2"})
    expect_refused(fine_tuning({"--num_processes", processes}), {"n_layer", "config.json"});
}

TEST_F(BadInputTest, WeightsOfAnotherShape) {
  make_model();
  replace_in_config("\"n_layer\": 2", "\"n_layer\": 3");
  expect_refused(fine_tuning(), {"missing tensor", "h.2."});
}

TEST_F(BadInputTest, EmptyDataset) {
  write_file_atomically(at("text.txt"), "");
  for (const char* processes : {"1", "2"})
    expect_refused(training("out", {"--num_processes", processes}), {at("text.txt")});
}

TEST_F(BadInputTest, TextShorterThanABlock) {
  write_file_atomically(at("text.txt"), "short\n");
  expect_refused(training("out"), {"text.txt", "32"});
}

TEST_F(BadInputTest, FewerBlocksThanAStepOfAFixedOrderTakes) {
  for (const char* processes : {"1", "2"})
    expect_refused(training("out", Strings{"--deterministic_reduce", "--num_processes", processes} + batch(500, 3, 1)),
                   {"one step takes", "--per_device_train_batch_size"});
}

TEST_F(BadInputTest, BlockLongerThanTheModel) {
  Strings arguments = training("out");
  for (std::size_t i = 0; i < arguments.size(); ++i)
    if (arguments[i] == "--block_size") arguments[i + 1] = "65";
  expect_refused(arguments, {"--block_size 65", "64 positions"});
}

TEST_F(BadInputTest, ProcessesThatCannotStart) {
  expect_refused(training("out", {"--num_processes", "1000000"}), {"--num_processes", "4096"});
  // Each process needs open files; a limit that is too low for all of them is detected before anything starts.
  expect_refused(training("out", {"--num_processes", "40"}), {"ulimit -n"},
                 {"/bin/bash", "-c", "ulimit -n 64; exec \"$@\"", "bash"});
}

TEST_F(BadInputTest, PortInUse) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
  const std::string port = concat(ntohs(address.sin_port));
  expect_refused(training("out", {"--num_processes", "2", "--main_process_port", port}), {port, "in use"});
  close(fd);
}

TEST_F(BadInputTest, OutputFolderNotEmpty) {
  make_folders(at("out"));
  write_file_atomically(path_join(at("out"), "thesis.txt"), "keep me");
  for (const char* processes : {"1", "2"})
    expect_refused(training("out", {"--num_processes", processes}), {"not empty", "--overwrite_output_dir"});
  EXPECT_EQ(read_file(path_join(at("out"), "thesis.txt")), "keep me");
}

/// --overwrite_output_dir replaces only files that a run wrote.
TEST_F(BadInputTest, OverwritingLeavesWhatNoRunHasWritten) {
  for (const char* folder : {"out/merged/src", "out/runs", "out/checkpoint-500"}) make_folders(at(folder));
  const Strings mine = {"out/merged/src/a.py", "out/runs/events", "out/checkpoint-500/keep"};
  for (const std::string& name : mine) write_file_atomically(at(name), "x");
  const auto run = tessera(training("out", {"--overwrite_output_dir"}));
  EXPECT_EQ(run.exit_code, 2) << run.err;
  EXPECT_TRUE(contains(run.err, at("out/checkpoint-500") + " is in the way")) << run.err;
  for (const std::string& name : mine) EXPECT_EQ(read_file(at(name)), "x") << name;
  remove_tree(at("out/checkpoint-500"));
  EXPECT_EQ(tessera(training("out", batch(4, 1, 1) + Strings{"--overwrite_output_dir"})).exit_code, 0);
  for (const char* name : {"out/merged/src/a.py", "out/runs/events"}) EXPECT_EQ(read_file(at(name)), "x") << name;
}

TEST_F(BadInputTest, OutputFolderIsAFile) {
  write_file_atomically(at("out"), "");
  expect_refused(training("out"), {at("out"), "is a file"});
  write_file_atomically(at("file"), "");
  expect_refused(training("file/below"), {at("file")});
}

TEST_F(BadInputTest, HalfAnEnvironment) {
  const auto run = launch::run_and_capture(Strings{program} + training("out"), {{"RANK", "0"}, {"WORLD_SIZE", "2"}},
                                           tessera::testing::patience(120));
  EXPECT_EQ(run.exit_code, 2) << run.err;
  EXPECT_TRUE(contains(run.err, "MASTER_ADDR")) << run.err;
  EXPECT_FALSE(path_exists(at("out")));
}

}  // namespace
}  // namespace tessera::testing
