// --strategy auto: what is chosen, what stays, what a restart finds.

#include <tessera/plan/automatic.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/config/core/mesh.h>

#include <gtest/gtest.h>

#include <cstdlib>

namespace tessera::plan {
namespace {

class Automatic : public ::testing::Test {
 protected:
  Automatic() { ::setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1); }  // no calibration of whoever runs this

  static config::Resolved resolved(std::vector<std::string> more = {}) {
    std::vector<std::string> flags = {"--config_name", "gpt2-tiny", "--block_size", "64"};
    if (std::find(more.begin(), more.end(), "--strategy") == more.end())
      flags.insert(flags.end(), {"--strategy", "auto"});
    flags.insert(flags.end(), more.begin(), more.end());
    return config::resolve_flags(flags, [](const std::string&) { return std::nullopt; });
  }
  static std::string fits(const config::Resolved& with) { return config::mesh_problem(with.values, 4, 4); }
  static std::int64_t rows_of(const RunConfig& c) {
    return c.optimization.per_device_train_batch_size * c.optimization.gradient_accumulation_steps *
           (4 / config::ranks_per_sample(c.parallel));
  }
  static constexpr Processes four = {.world_size = 4, .per_host = 4, .free_bytes = 8e9};
  TemporaryFolder folder_;
};

TEST_F(Automatic, KeepsTheGlobalBatchAndSaysWhy) {
  const Chosen chosen = choose_plan(resolved(), four, fits);
  EXPECT_EQ(rows_of(chosen.resolved.values), 4 * 8);
  EXPECT_EQ(config::mesh_problem(chosen.resolved.values, 4, 4), "");
  EXPECT_EQ(chosen.resolved.origin("strategy").str(), "derived (auto_strategy)");
  ASSERT_GE(chosen.lines.size(), 2u);
  EXPECT_NE(chosen.lines[0].find("built-in figures of CPU; tessera plan calibrate measures this machine"),
            std::string::npos)
      << chosen.lines[0];
}

TEST_F(Automatic, WhatIsGivenStays) {
  const std::vector<std::pair<std::vector<std::string>, std::function<bool(const RunConfig&)>>> table = {
      {{"--tp_size", "2"}, [](const RunConfig& c) { return c.parallel.tp_size == 2 && rows_of(c) == 2 * 8; }},
      {{"--pp_size", "2"}, [](const RunConfig& c) { return c.parallel.pp_size == 2; }},
      {{"--per_device_train_batch_size", "4"},
       [](const RunConfig& c) { return c.optimization.per_device_train_batch_size == 4 && rows_of(c) == 16; }},
      {{"--gradient_accumulation_steps", "3"},
       [](const RunConfig& c) { return c.optimization.gradient_accumulation_steps == 3 && rows_of(c) == 4 * 8 * 3; }},
      {{"--gradient_checkpointing"}, [](const RunConfig& c) { return c.optimization.gradient_checkpointing; }},
      {{"--auto_strategy", "--strategy", "full_shard"},
       [](const RunConfig& c) { return c.sharding.strategy == Strategy::full_shard; }},
  };
  for (const auto& [flags, holds] : table) {
    const config::Resolved given = resolved(flags);
    ASSERT_TRUE(given.values.sharding.auto_strategy) << join(flags, " ");
    const Chosen chosen = choose_plan(given, four, fits);
    EXPECT_TRUE(holds(chosen.resolved.values)) << join(flags, " ") << ": " << chosen.lines[0];
  }
}

TEST_F(Automatic, LittleMemoryDividesOrIsRefused) {
  Processes small = four;
  small.free_bytes = 1e6;
  try {
    choose_plan(resolved(), small, fits);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("nothing fits"), std::string::npos) << error.what();
  }
  EXPECT_THROW(choose_plan(resolved(), four, [](const auto&) { return std::string("no"); }), InputError);
  EXPECT_THROW(choose_plan(resolved({"--tp_size", "3"}), four, fits), InputError);
}

TEST_F(Automatic, ARestartTakesTheSame) {
  const std::string path = path_join(folder_.path(), chosen_file);
  std::string note;
  EXPECT_FALSE(chosen_before(resolved(), path, 4, note));
  config::Resolved first = resolved({"--pp_size", "2"});
  const Chosen chosen = choose_plan(first, four, fits);
  write_file_atomically(path, chosen_text(chosen.resolved.values, 4));
  const auto again = chosen_before(resolved(), path, 4, note);
  ASSERT_TRUE(again);
  EXPECT_EQ(note, "");
  EXPECT_EQ(again->resolved.values.parallel.pp_size, 2);
  EXPECT_EQ(chosen_text(again->resolved.values, 4), chosen_text(chosen.resolved.values, 4));
  EXPECT_FALSE(chosen_before(resolved(), path, 2, note));
  EXPECT_NE(note.find("another number of processes"), std::string::npos);
  EXPECT_FALSE(chosen_before(resolved({"--pp_size", "1"}), path, 4, note));
  EXPECT_NE(note.find("pp_size is 2, but --pp_size says 1"), std::string::npos) << note;
}

}  // namespace
}  // namespace tessera::plan
