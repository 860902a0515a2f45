// A run that is killed with SIGKILL and restarted equals the uninterrupted run: the same bytes in weights, optimizer
// states and the numbers of every step, on any number of ranks, with every strategy, and also in the usual (fast)
// order.

#include "resume_jobs.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

#include <tessera/checkpoint/folder.h>

namespace tessera::testing {
namespace {

class ResumeKilled : public ResumeJobs, public ::testing::WithParamInterface<Layout> {};

std::vector<Layout> layouts() {
  std::vector<Layout> chosen;
  for (const Layout& layout : all_layouts()) {
    if (layout.ranks == 3) continue;  // 1, 2 and 4
    const bool always = layout.name == "ddp_4" || layout.name == "full_shard_2";
    if (whole_product() || always) chosen.push_back(layout);
  }
  return chosen;
}

TEST_P(ResumeKilled, GoesOnAsIfNothingHadHappened) {
  constexpr int steps = 40;
  const Layout& layout = GetParam();
  const Words flags =
      layout.flags +
      Words{"--save_steps", "4", "--save_total_limit", "2", "--gradient_accumulation_steps", concat(4 / layout.ranks)};
  const RankOptions options = time_limit(60);
  const auto train_to_the_end = [&](const RunConfig& run) {
    run_ranks(
        layout.ranks,
        [&](comm::World&) {
          be_quiet();
          EXPECT_EQ(train::train(run, Value::make_object()), ExitCode::done);
        },
        options);
  };
  train_to_the_end(config("through", steps, flags));
  ASSERT_FALSE(HasFailure());

  // Every rank dies as soon as it sees a checkpoint, at an arbitrary point of its work; rank 0 may see it first or
  // last.
  const RunConfig killed = config("killed", steps, flags);
  const auto outcomes = run_ranks_outcomes(
      layout.ranks,
      [&](comm::World&) {
        be_quiet();
        std::thread([output = killed.output.output_dir] {
          for (;; ::usleep(500))
            if (checkpoint::step_folders(output).size() >= 1) ::kill(::getpid(), SIGKILL);
        }).detach();
        train::train(killed, Value::make_object());
      },
      options);
  for (const RankOutcome& outcome : outcomes) ASSERT_FALSE(outcome.ok) << "the run ended before it was killed";
  ASSERT_FALSE(path_exists(path("killed/model.safetensors")));

  train_to_the_end(config("killed", steps, flags + Words{"--resume_from_checkpoint", "last"}));
  ASSERT_FALSE(HasFailure());
  EXPECT_EQ(numbers("killed"), numbers("through"));
  EXPECT_TRUE(read_file(path("killed/model.safetensors")) == read_file(path("through/model.safetensors")))
      << "other weights";
  const std::string last = concat("checkpoint-", steps);
  int compared = 0;
  for (const std::string& name : list_folder(path("through/" + last))) {
    if (!name.starts_with("optimizer") && !name.starts_with("model")) continue;
    EXPECT_TRUE(read_file(path("killed/" + last + "/" + name)) == read_file(path("through/" + last + "/" + name)))
        << "other bytes in " << name;
    ++compared;
  }
  EXPECT_GE(compared, 2);
}

INSTANTIATE_TEST_SUITE_P(All, ResumeKilled, ::testing::ValuesIn(layouts()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tessera::testing
