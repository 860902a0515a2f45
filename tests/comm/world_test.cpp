// A world of one rank in this process: options of init(), and shutdown.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/comm/recorder.h>
#include <tessera/comm/world.h>

#include <tests/error_of.h>

#include <cstdlib>

namespace {

using namespace tessera;
using tessera::testing::error_of;

const launch::RankEnvironment alone;

void expect_init_error(const InitOptions& options, const std::vector<std::string>& words) {
  const std::string text = error_of<Error>([&] { init(alone, options); });
  EXPECT_NE(text, "");
  for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << word << " not in: " << text;
  shutdown();
}

TEST(World, one_rank_without_a_launcher) {
  comm::World& world = init(alone, {});
  EXPECT_EQ(&world, &tessera::world());
  EXPECT_EQ(world.size(), 1);
  EXPECT_EQ(world.local_size(), 1);
  EXPECT_EQ(world.group().backend(), "local");
  EXPECT_EQ(world.group().name(), "world");
  EXPECT_NE(error_of<Error>([] { init(alone, {}); }).find("twice"), std::string::npos);
  comm::Group again = world.new_group({0}, "again");
  at::Tensor t = at::ones({3});
  again.all_reduce(t).wait();
  EXPECT_THROW(world.new_group({1}, "nobody"), InputError);
  shutdown();
  shutdown();
  EXPECT_NE(error_of<Error>([] { tessera::world(); }).find("init()"), std::string::npos);
}

TEST(World, a_new_one_has_a_new_record) {
  init(alone, {}).group().barrier().wait();
  EXPECT_EQ(comm::recorder().last().size(), 1u);
  shutdown();
  init(alone, {});
  EXPECT_TRUE(comm::recorder().last().empty());
  shutdown();
}

TEST(World, unknown_backends_are_listed) {
  InitOptions options;
  options.backend = "glo";
  expect_init_error(options, {"'glo'", "auto, local, shm, hier, gloo, c10d_gloo, nccl", "gloo"});
  options.backend = "nccl";
  expect_init_error(options, {"nccl", "cpu"});
  options.backend = "auto";
  options.timeout_seconds = 0;
  expect_init_error(options, {"timeout_seconds"});
}

TEST(World, the_variable_overrides_auto_only) {
  setenv("TESSERA_BACKEND", "nonsense", 1);
  expect_init_error({}, {"TESSERA_BACKEND", "nonsense"});
  InitOptions options;
  options.backend = "local";
  init(alone, options);
  shutdown();
  setenv("TESSERA_BACKEND", "gloo", 1);
  EXPECT_EQ(init(alone, {}).group().size(), 1);  // gloo with one rank connects nothing
  shutdown();
  unsetenv("TESSERA_BACKEND");
}

TEST(World, threads_follow_the_variable) {
  setenv("OMP_NUM_THREADS", "3", 1);
  init(alone, {});
  EXPECT_EQ(at::get_num_threads(), 3);
  shutdown();
  setenv("OMP_NUM_THREADS", "many", 1);
  expect_init_error({}, {"OMP_NUM_THREADS", "many"});
  setenv("OMP_NUM_THREADS", "1", 1);
  init(alone, {});
  shutdown();
  unsetenv("OMP_NUM_THREADS");
}

}  // namespace
