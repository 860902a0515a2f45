// The configuration that the first process resolves, as passed to its ranks.
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/record/resolved_text.h>
#include <tessera/config/resolve/resolve.h>
#include <tessera/launch/agent/process.h>
#include <tests/paths.h>
#include <tests/stopwatch.h>

#include <fstream>
#include <thread>

namespace {

using namespace tessera;
using namespace tessera::config;

TEST(Handed, ValuesOriginsAndNotesComeBack) {
  Resolved given = resolve_flags({"--learning_rate", "1.1e-3", "--fsdp", "full_shard offload", "--run_name",
                                  "3:\xff \"x\"", "--eval_steps", "0.25", "--num_processes", "4", "--bf16"},
                                 [](const std::string&) { return std::nullopt; });
  given.notes = {"a note", ""};
  const Resolved got = resolved_from_text(resolved_to_text(given));
  for (const Field& field : fields())
    EXPECT_EQ(dump_json(field.get(got.values)), dump_json(field.get(given.values))) << field.name;
  EXPECT_EQ(got.origins, given.origins);
  EXPECT_EQ(got.notes, given.notes);
}

TEST(Handed, OtherTextIsRefused) {
  const std::string text = resolved_to_text(resolve_flags({}, [](const std::string&) { return std::nullopt; }));
  for (const std::string& wrong : {std::string(), std::string("5:ab"), text.substr(0, text.size() / 2), "x" + text})
    EXPECT_THROW(resolved_from_text(wrong), InputError) << wrong.substr(0, 20);
}

// The file can be read only once: it is a pipe whose writer exits after one complete read. Ranks that read it again
// would wait forever.
TEST(Handed, RanksDoNotReadTheConfigurationFileAgain) {
  const TemporaryFolder folder;
  const std::string pipe = path_join(folder.path(), "run.yaml"), text = path_join(folder.path(), "text.txt");
  write_file_atomically(text, std::string(1000, 'x'));
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] {
    std::ofstream(pipe) << "config_name: gpt2-tiny\ntrain_file: " << text
                        << "\nnum_processes: 2\noutput_dir: " << path_join(folder.path(), "out") << "\n";
  });
  // Without its tensor part the program exits after resolving the configuration, and a rank reports it.
  const std::string alone = path_join(folder.path(), "tessera");
  write_file_atomically(alone, read_file(tessera::testing::build_path("tessera"), 1u << 30));
  ASSERT_EQ(::chmod(alone.c_str(), 0700), 0);
  launch::Environment none;
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                           "TESSERA_BACKEND", "TESSERA_LAUNCHER", "TESSERA_CONFIG_FD"})
    none.emplace_back(name, std::nullopt);
  const auto run = launch::run_and_capture({alone, "train", "--config", pipe}, none, tessera::testing::patience(120));
  writer.join();
  EXPECT_NE(run.exit_code, 0);
  EXPECT_NE(run.err.find("rank"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("libtessera"), std::string::npos) << run.err;
}

}  // namespace
