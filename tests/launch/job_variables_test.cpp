// Settings refer to the job's size by one name, whichever launcher started it.

#include <tessera/launch/cli/job_variables.h>

#include <gtest/gtest.h>
#include <tessera/config/resolve/resolve.h>

#include <cstdlib>
#include <map>

namespace tessera::launch {
namespace {

using Variables = std::map<std::string, std::string>;

RankEnvironment environment_of(const Variables& variables) {
  return read_rank_environment(nullptr, [&](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

TEST(JobVariables, TheSizeOfTheJobHasOneName) {
  const auto size = [](const Variables& variables) { return job_variables(environment_of(variables))("WORLD_SIZE"); };
  EXPECT_EQ(size({{"OMPI_COMM_WORLD_RANK", "1"},
                  {"OMPI_COMM_WORLD_SIZE", "4"},
                  {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}),
            "4");
  EXPECT_EQ(size({{"RANK", "0"},
                  {"WORLD_SIZE", "2"},
                  {"LOCAL_RANK", "0"},
                  {"LOCAL_WORLD_SIZE", "2"},
                  {"MASTER_ADDR", "localhost"},
                  {"MASTER_PORT", "1234"}}),
            "2");
  ::unsetenv("WORLD_SIZE");
  EXPECT_EQ(size({}), std::nullopt);
  ::setenv("TESSERA_JOB_VARIABLES_TEST", "here", 1);
  EXPECT_EQ(job_variables(environment_of({}))("TESSERA_JOB_VARIABLES_TEST"), "here");
  ::unsetenv("TESSERA_JOB_VARIABLES_TEST");
}

// DeepSpeed's batch sizes are inferred from it.
TEST(JobVariables, BatchSizesOfDeepspeed) {
  const Variables mpirun = {{"OMPI_COMM_WORLD_RANK", "0"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};
  const auto batch = [](const Variables& variables) {
    return config::resolve_flags({"--deepspeed", R"({"train_batch_size": 64})"},
                                 job_variables(environment_of(variables)))
        .values.optimization.per_device_train_batch_size;
  };
  EXPECT_EQ(batch(mpirun), 16);
  EXPECT_EQ(batch({}), 64);
}

}  // namespace
}  // namespace tessera::launch
