// Checkpoints of tessera::Trainer that cannot be written: they are dropped on every rank with the cause, and training
// continues.
#include <tests/faces/trainer_options.h>
#include <tests/small_disk.h>

#include <tessera/base/file.h>
#include <tessera/checkpoint/folder.h>
#include <tessera/format/manifest/verify.h>

#include <torch/optim/adamw.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace {

using namespace tessera;
using namespace tessera::testing;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

struct Kind {
  const char* name;
  std::vector<std::string> flags;
  bool of_torch = false;  // the optimizer
};
const Kind kinds[] = {
    {"parts", {"--strategy=full_shard"}},
    {"parts of equal ranks", {"--strategy=ddp"}},
    {"whole", {"--strategy=zero1", "--save_state_dict_type=full"}},
    {"parts of an optimizer of torch", {"--strategy=full_shard"}, true},
    {"whole, of an optimizer of torch", {"--strategy=full_shard", "--save_state_dict_type=full"}, true}};

/// Records saves; the hooks run during them.
struct Saves : TrainerCallback {
  std::vector<std::string> folders;
  std::int64_t steps_done = 0;
  std::vector<std::int64_t> told_at, of_step;  ///< number of completed steps at that time; the checkpoint's step
  std::function<void(std::int64_t step)> step_ends = [](std::int64_t) {};
  std::function<void()> is_saved = [] {};
  void on_step_end(const TrainerState& state, TrainerControl&) override {
    steps_done = state.global_step;
    step_ends(steps_done);
  }
  void on_save(const TrainerState& state, TrainerControl&, const std::string& folder) override {
    folders.push_back(folder);
    told_at.push_back(steps_done);
    of_step.push_back(state.global_step);
    is_saved();
  }
};

struct Trained {
  Weights weights;
  std::vector<std::string> saved;  ///< folders
  std::string said;                ///< on standard error
  TrainerState state;
};

/// Six steps. Collective.
Trained train(const Kind& kind, int ranks, const std::vector<std::string>& more,
              const std::shared_ptr<Saves>& saves = std::make_shared<Saves>()) {
  std::vector<std::string> flags = {concat("--per_device_train_batch_size=", all_rows / ranks)};
  flags.insert(flags.end(), kind.flags.begin(), kind.flags.end());
  flags.insert(flags.end(), more.begin(), more.end());
  TrainerOptions given = options(flags);
  std::optional<torch::optim::AdamW> adamw;
  if (kind.of_torch) given.optimizer = &adamw.emplace(given.model->parameters());
  given.eval_dataset = steps_of(1);
  given.callbacks = {saves};
  ::testing::internal::CaptureStderr();
  Trainer trainer(std::move(given));
  EXPECT_EQ(trainer.train().global_step, 6);
  Trained result{.weights = weights_of(trainer.training().sharded()),
                 .saved = saves->folders,
                 .said = "",
                 .state = trainer.state()};
  result.said = ::testing::internal::GetCapturedStderr();
  return result;
}

class TrainerFailedSaves : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, TrainerFailedSaves, ::testing::Values(1, 2));

TEST_P(TrainerFailedSaves, the_disk_is_full_for_a_while) {
  for (const Kind& kind : kinds) {
    const SmallDisk disk;
    if (!disk.mounted()) GTEST_SKIP() << "needs root (mount a tmpfs): " << std::strerror(errno);
    const std::string out = disk.path("out");
    const std::vector<std::string> saving = {"--output_dir=" + out, "--save_steps=2", "--async_save=false"};
    run_ranks(GetParam(), [&](comm::World& world) {
      const Trained want = train(kind, GetParam(), {"--save_strategy=no"});
      const auto saves = std::make_shared<Saves>();
      saves->step_ends = [&](std::int64_t step) {  // saves follow
        if (world.rank() == 0 && step == 3) disk.fill();
        if (world.rank() == 0 && step == 5) {
          EXPECT_EQ(list_folder(out), std::vector<std::string>{"checkpoint-2"})
              << kind.name << ": no part of the other remains";
          disk.free_space();
        }
        world.group().barrier().wait();
      };
      const Trained got = train(kind, GetParam(), saving, saves);
      expect_same_bits(got.weights, want.weights, kind.name);
      EXPECT_EQ(got.saved, (std::vector<std::string>{path_join(out, "checkpoint-2"), path_join(out, "checkpoint-6")}))
          << kind.name;
      const bool told =
          contains(got.said, "step 4 is not saved, and training continues; earlier checkpoints are unharmed: ") &&
          contains(got.said, "No space left on device");
      EXPECT_EQ(told, world.rank() == 0) << kind.name << ": " << got.said;
    });
    EXPECT_EQ(list_folder(out), (std::vector<std::string>{"checkpoint-2", "checkpoint-6"})) << kind.name;
    for (const checkpoint::StepFolder& saved : checkpoint::step_folders(out)) {
      EXPECT_TRUE(format::verify_folder(saved.path).whole()) << kind.name << ": " << saved.path;
      EXPECT_EQ(read_json(path_join(saved.path, "trainer_state.json")).at("global_step").as_int(), saved.step);
    }
    run_ranks(GetParam(), [&](comm::World&) {  // the old one continues the run undisturbed
      const Trained want = train(kind, GetParam(), {"--save_strategy=no"});
      const Trained rest =
          train(kind, GetParam(), {"--save_strategy=no", "--resume_from_checkpoint=" + path_join(out, "checkpoint-2")});
      expect_same_bits(rest.weights, want.weights, kind.name);
    });
  }
}

TEST_P(TrainerFailedSaves, the_disk_is_full_while_the_training_goes_on) {
  for (const Kind& kind : {kinds[0], kinds[1], kinds[3]}) {
    const SmallDisk disk;
    if (!disk.mounted()) GTEST_SKIP() << "needs root (mount a tmpfs): " << std::strerror(errno);
    const std::string out = disk.path("out"), first = path_join(out, "checkpoint-2");
    const std::vector<std::string> saving = {"--output_dir=" + out, "--save_steps=2"};
    run_ranks(GetParam(), [&](comm::World& world) {
      const Trained want = train(kind, GetParam(), {"--save_strategy=no"});
      const auto saves = std::make_shared<Saves>();
      saves->is_saved = [&] {  // checkpoint-2 is complete, and no other has been started yet
        if (world.rank() == 0) disk.fill();
        world.group().barrier().wait();
      };
      const Trained got = train(kind, GetParam(), saving, saves);
      expect_same_bits(got.weights, want.weights, kind.name);
      EXPECT_EQ(got.saved, std::vector<std::string>{first}) << kind.name;
      ASSERT_EQ(saves->told_at.size(), 1u);
      EXPECT_GT(saves->told_at[0], 2) << kind.name << ": steps were done while it was written";
      EXPECT_EQ(saves->of_step[0], 2) << kind.name;
      for (const char* step : {"step 4 ", "step 6 "})
        EXPECT_EQ(contains(got.said, concat(step, "is not saved, and training continues")), world.rank() == 0)
            << kind.name << ": " << got.said;
    });
    EXPECT_EQ(list_folder(out), std::vector<std::string>{"checkpoint-2"}) << kind.name;
    EXPECT_TRUE(format::verify_folder(first).whole()) << kind.name;
    EXPECT_EQ(read_json(path_join(first, "trainer_state.json")).at("global_step").as_int(), 2) << kind.name;
    disk.free_space();
    run_ranks(GetParam(), [&](comm::World&) {  // step 2 was saved, whatever was computed during the save
      const Trained want = train(kind, GetParam(), {"--save_strategy=no"});
      std::vector<std::string> again = saving;
      again.push_back("--resume_from_checkpoint=last");
      const Trained rest = train(kind, GetParam(), again);
      expect_same_bits(rest.weights, want.weights, kind.name);
      EXPECT_EQ(rest.saved, (std::vector<std::string>{path_join(out, "checkpoint-4"), path_join(out, "checkpoint-6")}))
          << kind.name;
    });
  }
}

/// A save takes at least two steps: the first finishes writing, the next one learns the name.
TEST_P(TrainerFailedSaves, one_that_comes_while_another_is_written_is_left_out_if_so_configured) {
  const TemporaryFolder folder;
  run_ranks(GetParam(), [&](comm::World& world) {
    const Trained got =
        train(kinds[0], GetParam(), {"--output_dir=" + folder.path(), "--save_steps=1", "--async_save_when_busy=skip"});
    ASSERT_FALSE(got.saved.empty());
    EXPECT_EQ(got.saved[0], path_join(folder.path(), "checkpoint-1"));
    EXPECT_LE(got.saved.size(), 3u);
    for (int step = 1; step <= 6; ++step) {
      const std::string name = concat("checkpoint-", step);
      const bool saved =
          std::find(got.saved.begin(), got.saved.end(), path_join(folder.path(), name)) != got.saved.end();
      EXPECT_EQ(
          contains(got.said, concat("step ", step, " is not saved: the checkpoint before it is still being written")),
          !saved && world.rank() == 0)
          << got.said;
      EXPECT_EQ(path_exists(path_join(folder.path(), name)), saved) << name;
    }
  });
}

TEST_P(TrainerFailedSaves, nothing_can_be_saved_at_all) {
  const TemporaryFolder folder;
  write_file_atomically(path_join(folder.path(), "file"), "x");
  const std::string out = path_join(folder.path(), "file/out");
  for (const Kind& kind : kinds) {
    run_ranks(GetParam(), [&](comm::World& world) {
      const Trained want = train(kind, GetParam(), {"--save_strategy=no"});
      const Trained got = train(kind, GetParam(),
                                {"--output_dir=" + out, "--save_steps=2", "--eval_strategy=steps", "--eval_steps=2",
                                 "--load_best_model_at_end"});
      expect_same_bits(got.weights, want.weights, kind.name);
      EXPECT_TRUE(got.saved.empty()) << kind.name;
      EXPECT_EQ(got.state.best_model_checkpoint, "") << kind.name << ": not a checkpoint that does not exist";
      EXPECT_GT(got.state.best_global_step, 0) << kind.name;
      if (world.rank() != 0) return;
      for (const char* step : {"step 2 ", "step 4 ", "step 6 "})
        EXPECT_TRUE(contains(got.said, concat(step, "is not saved, and training continues")))
            << kind.name << ": " << got.said;
      EXPECT_TRUE(contains(got.said, "Not a directory")) << kind.name << ": " << got.said;
      EXPECT_TRUE(contains(got.said, "no checkpoint of a best evaluation was saved")) << kind.name << ": " << got.said;
    });
  }
}

}  // namespace
