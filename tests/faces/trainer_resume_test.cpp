// The checkpoint from which tessera::Trainer resumes: the rules of `tessera train` (train/core/resume.h).
#include <tests/faces/trainer_options.h>

#include <tessera/base/file.h>

#include <filesystem>

namespace {

using namespace tessera;
using namespace tessera::testing;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Flips a byte in the middle of the last file of that kind.
void damage(const std::string& folder, const std::string& ending) {
  std::string path;
  for (const std::string& name : list_folder(folder))
    if (name.ends_with(ending)) path = path_join(folder, name);
  ASSERT_FALSE(path.empty()) << folder << " has no " << ending;
  std::string bytes = read_file(path);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_file_atomically(path, bytes);
}

struct Trained {
  Weights weights;
  std::string said;  ///< on standard error
};

/// Trains `steps` steps in all, with a checkpoint every second step. Collective.
Trained train(const std::string& out, int ranks, int steps, const std::string& resume = "") {
  std::vector<std::string> flags = {concat("--per_device_train_batch_size=", all_rows / ranks), "--save_steps=2",
                                    "--strategy=full_shard", "--output_dir=" + out, concat("--max_steps=", steps)};
  if (!resume.empty()) flags.push_back("--resume_from_checkpoint=" + resume);
  ::testing::internal::CaptureStderr();
  Trained result;
  try {
    Trainer trainer(options(flags));
    EXPECT_EQ(trainer.train().global_step, steps);
    result.weights = weights_of(trainer.training().sharded());
  } catch (...) {
    ::testing::internal::GetCapturedStderr();
    throw;
  }
  result.said = ::testing::internal::GetCapturedStderr();
  return result;
}

class TrainerResume : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, TrainerResume, ::testing::Values(1, 2));

TEST_P(TrainerResume, a_damaged_newest_checkpoint_is_set_aside_and_the_one_before_it_is_taken) {
  for (const char* ending : {".safetensors", "state.json"}) {
    const TemporaryFolder folder;
    const std::string out = path_join(folder.path(), "out"), newest = path_join(out, "checkpoint-4");
    run_ranks(GetParam(), [&](comm::World& world) {
      const Weights whole = train(path_join(folder.path(), "whole"), world.size(), 6).weights;
      train(out, world.size(), 4);
      if (world.rank() == 0) damage(newest, ending);
      world.group().barrier().wait();
      const Trained resumed = train(out, world.size(), 6, "last");
      expect_same_bits(resumed.weights, whole, ending);
      if (world.rank() != 0) return;
      EXPECT_TRUE(contains(resumed.said, "damaged checkpoint, set aside as " + newest + ".damaged")) << resumed.said;
      EXPECT_TRUE(path_exists(newest + ".damaged"));
      EXPECT_TRUE(path_exists(newest)) << "rewritten on the way";
    });
  }
}

TEST_P(TrainerResume, one_that_is_half_written_or_anothers_is_passed_over) {
  const TemporaryFolder folder;
  run_ranks(GetParam(), [&](comm::World& world) {
    train(folder.path(), world.size(), 4);
    if (world.rank() == 0) {
      std::filesystem::remove(path_join(folder.path(), "checkpoint-4/manifest.json"));
      std::filesystem::create_directory(path_join(folder.path(), "checkpoint-9"));
    }
    world.group().barrier().wait();
    const Trained resumed = train(folder.path(), world.size(), 4, "last");
    if (world.rank() != 0) return;
    EXPECT_TRUE(contains(resumed.said, "skipping a checkpoint: ")) << resumed.said;
    EXPECT_FALSE(path_exists(path_join(folder.path(), "checkpoint-4.damaged")));
  });
}

TEST_P(TrainerResume, a_named_folder_is_taken_or_refused) {
  const TemporaryFolder folder;
  const std::string newest = path_join(folder.path(), "checkpoint-4"), older = path_join(folder.path(), "checkpoint-2");
  run_ranks(GetParam(), [&](comm::World& world) {
    train(folder.path(), world.size(), 4);
    if (world.rank() == 0) damage(newest, ".safetensors");
    world.group().barrier().wait();
    std::string error;
    try {
      train(folder.path(), world.size(), 6, newest);
    } catch (const Error& thrown) {
      EXPECT_EQ(thrown.exit_code(), ExitCode::bad_input);
      error = thrown.what();
    }
    if (world.rank() == 0) {
      EXPECT_TRUE(
          contains(error, "the checkpoint is damaged; the newest whole checkpoint in the same folder is " + older))
          << error;
      EXPECT_TRUE(path_exists(newest)) << "nothing is renamed";
    }
  });
}

TEST_P(TrainerResume, nothing_to_go_on_from) {
  const TemporaryFolder folder;
  run_ranks(GetParam(), [&](comm::World& world) {
    std::string error;
    try {
      train(folder.path(), world.size(), 2, "last");
    } catch (const Error& thrown) {
      EXPECT_EQ(thrown.exit_code(), ExitCode::bad_input);
      error = thrown.what();
    }
    if (world.rank() == 0) {
      EXPECT_EQ(error, concat("--resume_from_checkpoint last: ", folder.path(),
                              " has no complete checkpoint-N folder; remove the flag to start from scratch"));
    }
    EXPECT_EQ(train(folder.path(), world.size(), 2, "false").weights.empty(), false);
  });
}

}  // namespace
