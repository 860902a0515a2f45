// --strategy auto: the chosen plan, the settings that it leaves alone, and a restart.

#include <tessera/plan/automatic.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/config/core/mesh.h>

#include <gtest/gtest.h>

#include <tests/error_of.h>
#include <tests/own_folder.h>

#include <cstdlib>

namespace tessera::plan {
namespace {

using tessera::testing::error_of;

class Automatic : public ::testing::Test {
 protected:
  Automatic() { ::setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1); }  // hides the user's own calibration

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
  EXPECT_NE(chosen.lines[0].find("built-in figures for CPU; tessera plan calibrate measures this machine"),
            std::string::npos)
      << chosen.lines[0];
}

// When predictions cannot separate plans, the choice states its tie-breaker, unless the first of these plans cannot
// run.
TEST_F(Automatic, EqualPlansAreSaid) {
  const auto says = [](const Chosen& chosen) {
    return join(chosen.lines, "\n")
               .find(" plans are equally fast within the prediction error; this one was chosen for ") !=
           std::string::npos;
  };
  const config::Resolved given = resolved({"--block_size", "256", "--per_device_train_batch_size", "16"});
  const Chosen chosen = choose_plan(given, four, fits);
  EXPECT_TRUE(says(chosen)) << join(chosen.lines, "\n");
  std::string first;
  const Chosen other = choose_plan(given, four, [&](const config::Resolved& with) {
    const std::string plan =
        concat(with.values.parallel.tp_size, " ", with.values.parallel.cp_size, " ", with.values.parallel.pp_size);
    if (first.empty()) first = plan;
    return plan == first ? "not this one" : "";
  });
  EXPECT_FALSE(says(other)) << join(other.lines, "\n");
}

TEST_F(Automatic, RowsLieWithinTheirBounds) {
  const auto rows_of_plan = [](std::vector<std::string> more) {
    const Chosen chosen = choose_plan(resolved(std::move(more)), four, fits);
    EXPECT_EQ(rows_of(chosen.resolved.values), 4 * 16 * 2);
    return chosen.resolved.values.optimization.per_device_train_batch_size;
  };
  const std::vector<std::string> given = {"--per_device_train_batch_size", "16", "--gradient_accumulation_steps", "2"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), given.begin(), given.end());
    return rows_of_plan(std::move(more));
  };
  EXPECT_EQ(with({}), 16) << "the value is given, and no flag asks to choose another";
  EXPECT_LE(with({"--auto_max_batch_size", "2"}), 2);
  EXPECT_GE(with({"--auto_min_batch_size", "32", "--auto_max_batch_size", "1024"}), 32);
  EXPECT_NE(error_of([&] {
              with({"--auto_min_batch_size", "1024"});
            }).find("micro-batches must have 1024 rows or more, a power of two that divides a rank's"),
            std::string::npos);
  // A resumed run uses the rows per step that were chosen before, even if different ones are given.
  const std::string path = path_join(folder_.path(), chosen_file);
  std::vector<std::string> flags = given;
  flags.insert(flags.end(), {"--auto_max_batch_size", "2"});
  const config::Resolved asked = resolved(flags);
  const Chosen chosen = choose_plan(asked, four, fits);
  write_file_atomically(path, chosen_text(chosen.resolved.values, 4));
  std::string note;
  const auto before = chosen_before(asked, path, 4, note);
  ASSERT_TRUE(before.has_value()) << note;
  EXPECT_EQ(before->resolved.values.optimization.per_device_train_batch_size,
            chosen.resolved.values.optimization.per_device_train_batch_size);
  EXPECT_EQ(before->resolved.values.optimization.gradient_accumulation_steps,
            chosen.resolved.values.optimization.gradient_accumulation_steps);
}

TEST_F(Automatic, DeepspeedsAutotuningIsPlanned) {
  const std::string path = path_join(folder_.path(), "ds.json");
  write_file_atomically(path, R"({"train_micro_batch_size_per_gpu": "auto",
    "autotuning": {"enabled": true, "max_train_micro_batch_size_per_gpu": 2}})");
  const config::Resolved asked = config::resolve_flags(
      {"--config_name", "gpt2-tiny", "--block_size", "64", "--deepspeed", path, "--per_device_train_batch_size", "8"},
      [](const std::string&) { return std::nullopt; });
  ASSERT_TRUE(asked.values.sharding.auto_strategy);
  const Chosen chosen = choose_plan(asked, four, fits);
  EXPECT_EQ(rows_of(chosen.resolved.values), 4 * 8);
  EXPECT_LE(chosen.resolved.values.optimization.per_device_train_batch_size, 2);
  EXPECT_EQ(chosen.resolved.origin("strategy").str(), "derived (auto_strategy)");
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
  EXPECT_NE(note.find("a different number of processes"), std::string::npos);
  EXPECT_FALSE(chosen_before(resolved({"--pp_size", "1"}), path, 4, note));
  EXPECT_NE(note.find("pp_size is 2, but --pp_size sets 1"), std::string::npos) << note;
}

}  // namespace
}  // namespace tessera::plan
