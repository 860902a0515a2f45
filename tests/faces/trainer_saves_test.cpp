// Checkpoints of tessera::Trainer in which every rank writes its part (--save_state_dict_type sharded), and whole ones.
#include <tests/faces/mixed_model.h>
#include <tests/faces/trainer_options.h>

#include <tessera/base/file.h>
#include <tessera/format/safetensors/safetensors_index.h>

#include <torch/optim/adamw.h>

namespace {

using namespace tessera;
using namespace tessera::testing;

TrainerOptions mixed(const std::vector<std::string>& more, std::uint64_t seed = 7) {
  TrainerOptions made = options(more);
  made.model = make_mixed(seed);
  made.loss = loss_of<MixedModel>(
      [](MixedModel& net, const TensorBatch& batch) { return (net.forward(batch[0]) - batch[1]).square().mean(); });
  made.outputs = {};
  return made;
}

/// Weights and buffers after training, on every rank. Collective.
Weights trained(TrainerOptions given, const std::string& type = "") {
  const auto model = given.model;
  Trainer trainer(std::move(given));
  if (!type.empty()) trainer.set_state_dict_type(type);
  trainer.train();
  Weights weights = weights_of(trainer.training().sharded());
  for (const auto& buffer : model->named_buffers()) weights[buffer.key()] = buffer.value().clone();
  return weights;
}

std::vector<std::string> flags(const std::string& out, int ranks, const std::string& strategy,
                               const std::vector<std::string>& more = {}) {
  std::vector<std::string> flags = {concat("--per_device_train_batch_size=", all_rows / ranks), "--save_steps=3",
                                    "--strategy=" + strategy, "--output_dir=" + out};
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

const char* const index_names[] = {"model.safetensors.index.json", "optimizer.safetensors.index.json"};

TEST(TrainerSaves, parts_are_read_by_any_number_of_ranks_and_any_strategy) {
  for (const std::string strategy : {"ddp", "zero1", "full_shard"}) {
    const TemporaryFolder folder;
    const std::string out = path_join(folder.path(), "out"), third = path_join(out, "checkpoint-3");
    const std::string resume = "--resume_from_checkpoint=" + third;
    run_ranks(2, [&](comm::World& world) {
      const Weights whole = trained(mixed(flags(out, 2, strategy)));
      if (world.rank() == 0) {
        for (const char* name : index_names) EXPECT_TRUE(path_exists(path_join(third, name))) << name;
        EXPECT_FALSE(path_exists(path_join(third, "model.safetensors")));
        EXPECT_EQ(format::SafetensorsFolder(third).tensors().size(), 8u + 4u) << "parameters and buffers";
      }
      const std::string again = path_join(folder.path(), "again");
      const Weights rest = trained(mixed(flags(again, 2, strategy, {resume}), 9));
      expect_same_bits(rest, whole, strategy);
      for (const char* other : {"ddp", "full_shard"})
        expect_close(trained(mixed(flags(again, 2, other, {resume}), 9)), whole, 1e-4, strategy + " to " + other);
    });
    // One rank loads the checkpoint and takes no further step: BatchNorm would see different batches than on two ranks.
    run_ranks(1, [&](comm::World&) {
      TrainerOptions given = mixed(flags(path_join(folder.path(), "one"), 1, "ddp", {resume, "--max_steps=3"}), 9);
      const Weights got = trained(std::move(given));
      const format::SafetensorsFolder saved(third);
      for (const auto& stored : saved.tensors()) {
        const at::Tensor& mine = got.at(stored.info.name);
        ASSERT_EQ(mine.nbytes(), saved.bytes(stored).size());
        EXPECT_EQ(std::memcmp(mine.const_data_ptr(), saved.bytes(stored).data(), mine.nbytes()), 0) << stored.info.name;
      }
      const auto original = make_mixed(7);
      EXPECT_TRUE(at::equal(got.at("frozen.weight"), original->frozen->weight)) << "not from the initial seed";
      EXPECT_EQ(got.at("norm.num_batches_tracked").item<std::int64_t>(), 3);
    });
  }
}

/// SimpleModel has no batch statistics: one rank continues two ranks' run with the same mathematics.
TEST(TrainerSaves, one_rank_continues_what_two_have_saved) {
  for (const std::string strategy : {"zero2", "full_shard"}) {
    const TemporaryFolder folder;
    const std::string resume = "--resume_from_checkpoint=" + folder.path() + "/checkpoint-3";
    const Plain plain =
        train_plain(2, 6, [](const at::Tensor& p) { return p.dim() > 1 ? 0.01 : 0.0; }, [](int) { return 0.002; });
    run_ranks(2,
              [&](comm::World&) { trained(options(flags(folder.path(), 2, strategy, {"--deterministic_reduce"}))); });
    run_ranks(1, [&](comm::World&) {
      TrainerOptions given = options({"--deterministic_reduce", "--gradient_accumulation_steps=2", "--save_strategy=no",
                                      concat("--per_device_train_batch_size=", all_rows / 2), resume});
      expect_same_bits(trained(std::move(given)), plain.weights, strategy);
    });
  }
}

TEST(TrainerSaves, whole_ones_when_asked_for) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World&) {
    const auto whole = [&](const std::string& name) {
      const std::string saved = path_join(path_join(folder.path(), name), "checkpoint-3");
      for (const char* index : index_names) EXPECT_FALSE(path_exists(path_join(saved, index))) << name;
      return path_exists(path_join(saved, "model.safetensors")) &&
             path_exists(path_join(saved, "optimizer.safetensors"));
    };
    const auto at = [&](const char* name) { return path_join(folder.path(), name); };
    trained(options(flags(at("flag"), 2, "full_shard", {"--save_state_dict_type=full"})));
    EXPECT_TRUE(whole("flag"));
    trained(options(flags(at("call"), 2, "full_shard")), "FULL_STATE_DICT");
    EXPECT_TRUE(whole("call"));
  });
}

/// The user's optimizer of torch::optim is saved in parts, too, and its run can continue from both forms.
TEST(TrainerSaves, an_optimizer_of_the_users_in_both_forms) {
  for (const std::string type : {"SHARDED_STATE_DICT", "FULL_STATE_DICT"}) {
    const TemporaryFolder folder;
    const std::string saved = path_join(folder.path(), "checkpoint-3");
    run_ranks(2, [&](comm::World&) {
      const auto run = [&](const std::vector<std::string>& more) {
        TrainerOptions given = options(flags(folder.path(), 2, "full_shard", more));
        torch::optim::AdamW adamw(given.model->parameters());
        given.optimizer = &adamw;
        return trained(std::move(given), type);
      };
      const Weights whole = run({});
      for (const char* index : index_names)
        EXPECT_EQ(path_exists(path_join(saved, index)), type == "SHARDED_STATE_DICT") << type;
      expect_same_bits(run({"--save_strategy=no", "--resume_from_checkpoint=" + saved}), whole, type);
    });
  }
}

/// set_state_dict_type() between checkpoints: the one being written is completed before the form changes.
TEST(TrainerSaves, the_form_changes_while_a_checkpoint_is_written) {
  struct Changes : TrainerCallback {
    Trainer* trainer = nullptr;
    void on_step_end(const TrainerState& state, TrainerControl&) override {
      if (state.global_step == 4) trainer->set_state_dict_type("FULL_STATE_DICT");
    }
  };
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    TrainerOptions given = options(flags(folder.path(), 2, "full_shard"));
    const auto changes = std::make_shared<Changes>();
    given.callbacks = {changes};
    Trainer trainer(std::move(given));
    changes->trainer = &trainer;
    trainer.train();
    if (world.rank() != 0) return;
    for (const char* index : index_names) {
      EXPECT_TRUE(path_exists(path_join(folder.path(), concat("checkpoint-3/", index)))) << index;
      EXPECT_FALSE(path_exists(path_join(folder.path(), concat("checkpoint-6/", index)))) << index;
    }
    EXPECT_TRUE(path_exists(path_join(folder.path(), "checkpoint-6/optimizer.safetensors")));
  });
}

}  // namespace
