// What our agent starts again goes on from the newest whole checkpoint of its job; a damaged one is set aside, and
// without any the job begins again.

#include "resume_jobs.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>

namespace tessera::testing {
namespace {

class ResumeRestart : public ResumeJobs {
 protected:
  static constexpr int ranks = 2, last_step = 4;

  void train(int generation) const {
    const RunConfig run = config("out", last_step,
                                 Words{"--save_steps", "2", "--fsdp", "full_shard auto_wrap"} +
                                     (generation > 0 ? Words{"--overwrite_output_dir"} : Words{}));
    run_ranks(
        ranks,
        [&](comm::World& world) {
          be_quiet();
          const std::vector<std::pair<const char*, std::string>> of_agent = {
              {"RANK", concat(world.rank())},
              {"LOCAL_RANK", concat(world.rank())},
              {"WORLD_SIZE", concat(ranks)},
              {"LOCAL_WORLD_SIZE", concat(ranks)},
              {"MASTER_ADDR", "127.0.0.1"},
              {"MASTER_PORT", "29500"},
              {"TESSERA_LAUNCHER", "1"},
              {"TESSERA_JOB", "job-of-the-test"},
              {"TESSERA_GENERATION", concat(generation)}};
          for (const auto& [name, value] : of_agent) ::setenv(name, value.c_str(), 1);
          RunConfig here = run;
          here.output.overwrite_output_dir = false;  // validated by the agent, before the first start
          EXPECT_EQ(train::train(here, Value::make_object()), ExitCode::done);
        },
        time_limit(60));
  }
  /// As a failed generation leaves it: marked as the job's, before the checkpoints were written.
  void mark() const {
    const std::string file = path("out/.tessera-job");
    write_file_atomically(file, "job-of-the-test\n");
    std::filesystem::last_write_time(
        file, std::filesystem::last_write_time(path("out/checkpoint-2/manifest.json")) - std::chrono::hours(1));
  }
  void damage(int step) const {
    const std::string file = path(concat("out/checkpoint-", step, "/optimizer-00002-of-00002.safetensors"));
    std::string bytes = read_file(file);
    bytes.back() ^= 1;
    write_file_atomically(file, bytes);
  }
  bool set_aside(int step) const {
    return path_exists(path(concat("out/checkpoint-", step, ".damaged/manifest.json")));
  }
};

TEST_F(ResumeRestart, DamagedCheckpointsOfTheJobArePassedOver) {
  train(0);
  ASSERT_FALSE(HasFailure());
  const std::string expected = numbers("out"), weights = read_file(path("out/model.safetensors"));

  mark();
  damage(4);
  train(1);
  ASSERT_FALSE(HasFailure());
  EXPECT_TRUE(set_aside(4));
  EXPECT_FALSE(set_aside(2));
  EXPECT_EQ(numbers("out"), expected);
  EXPECT_TRUE(read_file(path("out/model.safetensors")) == weights);

  remove_tree(path("out/checkpoint-4.damaged"));
  mark();
  damage(2);
  damage(4);
  train(2);
  ASSERT_FALSE(HasFailure());
  EXPECT_TRUE(set_aside(2));
  EXPECT_TRUE(set_aside(4));
  EXPECT_EQ(numbers("out"), expected) << "began again";
  EXPECT_TRUE(read_file(path("out/model.safetensors")) == weights);
}

}  // namespace
}  // namespace tessera::testing
