#include <tessera/checkpoint/checkpoint.h>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <string>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tests/checkpoint/saved.h>
#include <tests/own_folder.h>

namespace tessera::checkpoint {
namespace {

class NamedFiles final : public text::Tokenizer {
 public:
  explicit NamedFiles(bool fails = false) : fails_(fails) {}
  std::vector<std::int32_t> encode(std::string_view) const override { return {}; }
  std::string decode(std::span<const std::int32_t>) const override { return {}; }
  std::int64_t vocab_size() const override { return 1; }
  std::optional<std::int32_t> end_of_text() const override { return std::nullopt; }
  void save(const std::string& folder) const override {
    write_file_atomically(path_join(folder, "tokenizer.json"), "{}");
    if (fails_) throw Error("no space left");
  }

 private:
  bool fails_;
};

class CheckpointTest : public ::testing::Test {
 protected:
  RunState state(std::int64_t step) const {
    RunState state;
    state.step = step;
    state.samples = 16 * step;
    state.seed = std::numeric_limits<std::uint64_t>::max() - 1;
    state.log_history = {Value::make_object({{"step", Value::of(step)}, {"loss", Value::of(0.1)}})};
    state.models[0].optimizer_steps = step;
    state.epoch = 1.5;
    state.max_steps = 100;
    return state;
  }
  std::string save(std::int64_t step, std::int64_t keep = 0) {
    return save_checkpoint(out(), weights_, config_, &tokenizer_, state(step), optimizer_, keep);
  }
  const std::string& out() const { return folder_.path(); }
  static void flip_bit(const std::string& path) {
    std::string bytes = read_file(path);
    bytes[bytes.size() / 2] ^= 4;
    write_file_atomically(path, bytes);
  }
  std::vector<std::string> names() const { return list_folder(out()); }

  TemporaryFolder folder_;
  NamedFiles tokenizer_;
  NamedTensors weights_{{"wte.weight", at::randn({5, 3})}, {"h.0.bias", at::randn({4}).to(at::kBFloat16)}};
  NamedTensors optimizer_{{"exp_avg.0", at::randn({7})}, {"exp_avg_sq.0", at::rand({7})}};
  Value config_ = Value::make_object({{"model_type", Value::of("gpt2")}, {"eos_token_id", Value::of(3)}});
};

std::string complaint(const std::string& folder) {
  try {
    verify_checkpoint(folder);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST_F(CheckpointTest, WhatIsSavedIsReadBack) {
  const RunState before = state(12);
  const std::string folder = save_checkpoint(out(), weights_, config_, &tokenizer_, before, optimizer_, 0);
  EXPECT_EQ(folder, path_join(out(), "checkpoint-12"));
  EXPECT_EQ(names(), std::vector<std::string>{"checkpoint-12"});
  EXPECT_EQ(list_folder(folder),
            (std::vector<std::string>{"config.json", "generation_config.json", "manifest.json", "model.safetensors",
                                      "optimizer.safetensors", "tessera_state.json", "tokenizer.json",
                                      "trainer_state.json"}));
  EXPECT_EQ(complaint(folder), "");
  const NamedTensors weights = read_hf_weights(folder);
  ASSERT_EQ(weights.size(), 2u);
  for (const auto& [name, tensor] : weights) {
    const auto original =
        std::find_if(weights_.begin(), weights_.end(), [&](const auto& one) { return one.first == name; });
    ASSERT_NE(original, weights_.end()) << name;
    EXPECT_EQ(tensor.scalar_type(), original->second.scalar_type());
    EXPECT_TRUE(at::equal(tensor, original->second)) << name;
  }
  const RunState after = read_run_state(folder);
  EXPECT_EQ(after.step, before.step);
  EXPECT_EQ(after.samples, before.samples);
  EXPECT_EQ(after.seed, before.seed);
  EXPECT_EQ(after.models[0].optimizer_steps, before.models[0].optimizer_steps);
  const Value trainer = read_json(path_join(folder, kTrainerStateFile));
  EXPECT_EQ(trainer.at("epoch").as_real(), before.epoch);
  EXPECT_EQ(trainer.at("max_steps").as_int(), before.max_steps);
  ASSERT_EQ(after.log_history.size(), 1u);
  EXPECT_EQ(after.log_history[0].at("loss").as_real(), 0.1);
  for (const auto& [name, tensor] : optimizer_) EXPECT_TRUE(at::equal(read_state(folder, name), tensor)) << name;
  EXPECT_EQ(read_json(path_join(folder, "generation_config.json")).at("eos_token_id").as_int(), 3);
}

TEST_F(CheckpointTest, AnyDamagedFileIsNamed) {
  const std::string folder = save(1);
  for (const std::string& name : list_folder(folder)) {
    const std::string path = path_join(folder, name), good = read_file(path);
    flip_bit(path);
    EXPECT_NE(complaint(folder).find(name), std::string::npos) << name << ": " << complaint(folder);
    write_file_atomically(path, good.substr(0, good.size() - 2));
    EXPECT_NE(complaint(folder).find(name), std::string::npos) << name << ": " << complaint(folder);
    remove_tree(path);
    EXPECT_NE(complaint(folder).find(name), std::string::npos) << name << ": " << complaint(folder);
    write_file_atomically(path, good);
    EXPECT_EQ(complaint(folder), "");
  }
  format::write_manifest(folder, {1, {}});
  EXPECT_NE(complaint(folder).find("does not list config.json"), std::string::npos) << complaint(folder);
}

TEST_F(CheckpointTest, NewestIsTheNewestThatVerifies) {
  EXPECT_EQ(choose_newest(step_folders(out()), {}), std::nullopt);
  EXPECT_EQ(choose_newest(step_folders(path_join(out(), "absent")), {}), std::nullopt);
  save(9);
  save(10);
  save(100);
  make_folders(path_join(out(), "checkpoint-200"));        // no manifest: not a checkpoint
  make_folders(path_join(out(), "checkpoint-300.tmp.1"));  // being written
  make_folders(path_join(out(), "checkpoint-0400"));       // not one of our names
  EXPECT_EQ(choose_newest(step_folders(out()), {}), path_join(out(), "checkpoint-100"));
  flip_bit(path_join(out(), "checkpoint-100/model.safetensors"));
  EXPECT_EQ(choose_newest(step_folders(out()), {}), path_join(out(), "checkpoint-10"));
  remove_tree(path_join(out(), "checkpoint-10/manifest.json"));
  EXPECT_EQ(choose_newest(step_folders(out()), {}), path_join(out(), "checkpoint-9"));
}

TEST_F(CheckpointTest, PruningKeepsTheNewestCompleteOnes) {
  save(1);
  save(2);
  save(3, 2);
  EXPECT_EQ(names(), (std::vector<std::string>{"checkpoint-2", "checkpoint-3"}));
  // A later but damaged checkpoint does not count, and the checkpoint just saved is kept although its step is smaller.
  save(50);
  remove_tree(path_join(out(), "checkpoint-50/model.safetensors"));
  make_folders(path_join(out(), "checkpoint-7"));  // not ours: no manifest
  save(4, 1);
  EXPECT_EQ(names(), (std::vector<std::string>{"checkpoint-4", "checkpoint-7"}));
  EXPECT_EQ(choose_newest(step_folders(out()), {}), path_join(out(), "checkpoint-4"));
}

TEST_F(CheckpointTest, SavingAStepAgainReplacesIt) {
  save(5);
  weights_[0].second.fill_(2.5);
  const std::string folder = save(5);
  EXPECT_EQ(names(), std::vector<std::string>{"checkpoint-5"});
  EXPECT_EQ(complaint(folder), "");
  const NamedTensors weights = read_hf_weights(folder);
  EXPECT_TRUE(std::any_of(weights.begin(), weights.end(),
                          [&](const auto& one) { return at::equal(one.second, weights_[0].second); }));
}

TEST_F(CheckpointTest, AFailedSaveLeavesWhatWasThere) {
  save(5);
  const NamedFiles broken(true);
  EXPECT_THROW(save_checkpoint(out(), weights_, config_, &broken, state(5), optimizer_, 1), Error);
  EXPECT_THROW(save_checkpoint(out(), weights_, config_, &broken, state(6), optimizer_, 1), Error);
  EXPECT_EQ(names(), std::vector<std::string>{"checkpoint-5"});
  EXPECT_EQ(complaint(path_join(out(), "checkpoint-5")), "");
}

TEST_F(CheckpointTest, LeftoversOfDeadRunsAreRemovedThoseOfLivingOnesStay) {
  const pid_t dead = ::fork();
  if (dead == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(dead, nullptr, 0), dead);
  const std::string alive = "checkpoint-9.tmp." + std::to_string(::getppid());
  for (const std::string& name :
       {"checkpoint-9.tmp." + std::to_string(dead), "checkpoint-8.old." + std::to_string(dead), alive,
        std::string("checkpoint-x.tmp.1"), std::string("mine.tmp.1")}) {
    make_folders(path_join(out(), name));
  }
  save(1);
  EXPECT_EQ(names(), (std::vector<std::string>{"checkpoint-1", alive, "checkpoint-x.tmp.1", "mine.tmp.1"}));
}

// A run killed at any moment leaves only valid checkpoints, at least one once it has saved, and the next run removes
// the leftovers.
TEST_F(CheckpointTest, AKilledRunLeavesAValidNewestCheckpoint) {
  for (int round = 0; round < 6; ++round) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (char step = 1;; ++step) {  // step % 4, so that existing folders are also replaced
        save(1 + step % 4, 2);
        const char saved = 1;
        if (::write(ends[1], &saved, 1) != 1) ::_exit(1);
      }
    }
    ::close(ends[1]);
    char saved = 0;
    ASSERT_EQ(::read(ends[0], &saved, 1), 1) << "the child must have saved once";
    ::usleep(7000 + 23000 * round);  // a save takes tens of milliseconds
    ::kill(child, SIGKILL);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    ::close(ends[0]);
    const auto newest = choose_newest(step_folders(out()), {});
    ASSERT_TRUE(newest.has_value());
    for (const StepFolder& folder : step_folders(out())) EXPECT_EQ(complaint(folder.path), "");
    save(9, 1);
    EXPECT_EQ(names(), std::vector<std::string>{"checkpoint-9"});
    remove_tree(path_join(out(), "checkpoint-9"));
  }
}

}  // namespace
}  // namespace tessera::checkpoint
