// A run restarted by the agent continues from its job's newest valid checkpoint; a damaged one is set aside, and
// without any the job starts from the beginning.

#include "resume_jobs.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>

namespace tessera::testing {
namespace {

class ResumeRestart : public ResumeJobs {
 protected:
  static constexpr int ranks = 2, last_step = 4;

  void train(int generation, const std::string& job = "job-of-the-test") const {
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
              {"TESSERA_JOB", job},
              {"TESSERA_GENERATION", concat(generation)}};
          for (const auto& [name, value] : of_agent) ::setenv(name, value.c_str(), 1);
          RunConfig here = run;
          here.output.overwrite_output_dir = false;  // validated by the agent before the first start
          EXPECT_EQ(train::train(here, Value::make_object()), ExitCode::done);
        },
        time_limit(60));
  }
  /// The state left by a failed generation: the folder was marked as the job's before the checkpoints were written.
  void mark(const std::string& job = "job-of-the-test", int hours = -1) const {
    const std::string file = path("out/.tessera-job");
    write_file_atomically(file, job + "\n");
    std::filesystem::last_write_time(file, written(2) + std::chrono::hours(hours));
  }
  std::filesystem::file_time_type written(int step) const {
    return std::filesystem::last_write_time(path(concat("out/checkpoint-", step, "/manifest.json")));
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

/// A checkpoint records which job wrote it, because clocks may be set back and file times may be in the future.
TEST_F(ResumeRestart, TheTimesOfFilesDoNotCount) {
  train(0);
  ASSERT_FALSE(HasFailure());
  const std::string expected = numbers("out");
  mark("job-of-the-test", +1);  // as if the clock had been set back after the start of the job
  remove_tree(path("out/checkpoint-4"));
  const auto before = written(2);
  train(1);
  ASSERT_FALSE(HasFailure());
  EXPECT_EQ(written(2), before) << "it began again";
  EXPECT_EQ(numbers("out"), expected);
}

TEST_F(ResumeRestart, CheckpointsOfAnotherJobAreNotTaken) {
  train(0, "the job before");
  ASSERT_FALSE(HasFailure());
  mark("the job after");  // older than the checkpoints
  const auto before = written(2);
  train(1, "the job after");
  ASSERT_FALSE(HasFailure());
  EXPECT_NE(written(2), before) << "it went on with a model of another job";
}

}  // namespace
}  // namespace tessera::testing
