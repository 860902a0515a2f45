// Checkpoints of tessera::Accelerator and of DeepSpeed's engine: who writes what, and that any layout can read those of
// any other.
#include <tests/faces/mixed_model.h>

#include <tessera/base/file.h>
#include <tessera/base/value.h>
#include <tessera/checkpoint/tensor_bridge.h>
#include <tessera/config/sections/model_config.h>
#include <tessera/faces/accelerator.h>
#include <tessera/faces/deepspeed.h>
#include <tessera/faces/folder.h>
#include <tessera/format/manifest/verify.h>
#include <tessera/format/safetensors/safetensors_index.h>
#include <tessera/models/load.h>

#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cstdlib>
#include <limits>

namespace {

using namespace tessera;
using namespace tessera::testing;

constexpr const char* kinds[] = {"adamw", "adafactor", "torch"};

std::vector<std::string> with_states_of(const std::string& kind, std::vector<std::string> arguments) {
  if (kind == "adamw") arguments.push_back("--bf16_optimizer_states");
  return arguments;
}

/// An Accelerator with MixedModel and one optimizer: of this library (AdamW's states in bf16), or torch's AdamW with
/// amsgrad.
struct Job {
  std::shared_ptr<MixedModel> net;
  std::unique_ptr<torch::optim::AdamW> adamw;
  Accelerator accelerator;
  std::function<void(int step)> train;

  Job(const std::string& kind, std::vector<std::string> arguments, std::uint64_t seed)
      : net(make_mixed(seed)), accelerator({.arguments = with_states_of(kind, std::move(arguments))}) {
    if (kind == "torch") {
      adamw = std::make_unique<torch::optim::AdamW>(net->parameters(), torch::optim::AdamWOptions(2e-3).amsgrad(true));
      trains_with(accelerator.prepare(net, *adamw));
    } else {
      trains_with(accelerator.prepare(net, OptimizerSettings{.name = kind, .lr = 2e-3}));
    }
  }
  template <class Prepared>
  void trains_with(Prepared prepared) {
    train = [this, prepared](int step) mutable {
      auto& [model, optimizer] = prepared;
      const Batch batch = micro_batch(step, accelerator.process_index(), accelerator.num_processes());
      accelerator.backward((model(batch.x) - batch.y).square().mean());
      optimizer.step();
      optimizer.zero_grad();
    };
  }
  /// Saves everything, whole, in one folder, for comparing layouts.
  void save_whole(const std::string& folder) {
    faces::save_training({&accelerator.training()}, folder, /*full=*/true, {});
  }
};

std::vector<std::string> of(const std::string& strategy, const std::vector<std::string>& more = {}) {
  std::vector<std::string> all = {"--strategy=" + strategy};
  if (strategy == "hybrid_shard") all.push_back("--shard_group_size=2");
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

/// Tensors are aligned, so that readers can use a mapped file directly.
void expect_aligned(const std::string& folder) {
  for (const std::string& name : list_folder(folder)) {
    if (!name.ends_with(".safetensors")) continue;
    const format::SafetensorsFile file(path_join(folder, name));
    for (const auto& info : file.tensors())
      EXPECT_EQ(info.begin % format::dtype_size(info.dtype), 0u) << name << ": " << info.name;
  }
}

/// Tensors of model.safetensors and optimizer.safetensors, and their bytes.
std::map<std::string, std::string> whole_tensors(const std::string& folder) {
  std::map<std::string, std::string> tensors;
  for (const char* stem : {"model", "optimizer"}) {
    const format::SafetensorsFile file(path_join(folder, concat(stem, ".safetensors")));
    for (const auto& info : file.tensors()) {
      const auto bytes = file.bytes(info);
      tensors[concat(stem, " ", info.name, " ", format::dtype_name(info.dtype), " ", at::IntArrayRef(info.shape))] =
          std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
  }
  return tensors;
}

class FaceSaves : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, FaceSaves, ::testing::ValuesIn(kinds));

TEST_P(FaceSaves, any_layout_loads_any_other_byte_by_byte) {
  const std::string kind = GetParam();
  struct Layout {
    int ranks;
    const char* strategy;
  };
  const Layout writers[] = {{1, "ddp"}, {2, "full_shard"}, {4, "hybrid_shard"}},
               readers[] = {{1, "ddp"}, {3, "full_shard"}, {2, "zero1"}};
  for (const Layout& writer : writers) {
    const TemporaryFolder folder;
    const std::string saved = path_join(folder.path(), "state"), whole = path_join(folder.path(), "whole");
    run_ranks(writer.ranks, [&](comm::World&) {
      Job job(kind, of(writer.strategy), 7);
      for (int step = 0; step < 2; ++step) job.train(step);
      job.accelerator.save_state(saved + "/");
      job.save_whole(whole);
    });
    const format::Verdict verdict = format::verify_folder(saved);
    EXPECT_TRUE(verdict.whole()) << verdict.text();
    expect_aligned(saved);
    expect_aligned(whole);
    const auto want = whole_tensors(whole);
    EXPECT_TRUE(want.count("model frozen.weight F32 [32, 32]"));
    EXPECT_TRUE(want.count("model norm.num_batches_tracked I64 []"));
    if (kind == "adamw") {
      EXPECT_TRUE(want.count("optimizer exp_avg.in.weight BF16 [32, 12]"));
    }
    EXPECT_GT(want.size(), 12u + 6u) << "parameters, buffers, and states of each trained parameter";
    for (const Layout& reader : readers) {
      const std::string again = path_join(folder.path(), "again");
      run_ranks(reader.ranks, [&](comm::World&) {
        Job job(kind, of(reader.strategy), 9);
        job.train(5);
        job.accelerator.load_state(saved);
        job.save_whole(again);
      });
      const auto got = whole_tensors(again);
      EXPECT_EQ(got.size(), want.size());
      for (const auto& [name, bytes] : want)
        EXPECT_TRUE(got.count(name) && got.at(name) == bytes)
            << kind << ", " << writer.ranks << " " << writer.strategy << " to " << reader.ranks << " "
            << reader.strategy << ": " << name;
    }
  }
}

TEST_P(FaceSaves, every_rank_writes_its_part_unless_whole_tensors_are_asked_for) {
  const std::string kind = GetParam();
  const TemporaryFolder folder;
  for (const char* strategy : {"full_shard", "ddp"})
    run_ranks(2, [&](comm::World& world) {
      const std::string parts = path_join(folder.path(), "parts"), full = path_join(folder.path(), "full");
      Job job(kind, of(strategy), 7), whole(kind, of(strategy, {"--save_state_dict_type=FULL_STATE_DICT"}), 7);
      job.train(0);
      whole.train(0);
      job.accelerator.save_state(parts);
      whole.accelerator.save_state(full);
      if (world.rank() > 0) return;
      EXPECT_EQ(list_folder(full),
                (std::vector<std::string>{"manifest.json", "model.safetensors", "optimizer.safetensors",
                                          "random.safetensors", "tessera_state.json"}));
      EXPECT_EQ(
          list_folder(parts),
          (std::vector<std::string>{"manifest.json", "model-00001-of-00002.safetensors",
                                    "model-00002-of-00002.safetensors", "model.safetensors.index.json",
                                    "optimizer-00001-of-00002.safetensors", "optimizer-00002-of-00002.safetensors",
                                    "optimizer.safetensors.index.json", "random.safetensors", "tessera_state.json"}))
          << "nothing that belongs to rank 0 only";
      const format::SafetensorsFolder weights(parts);
      EXPECT_EQ(weights.tensors().size(), format::SafetensorsFolder(full).tensors().size());
      std::uint64_t bytes[] = {0, 0};
      for (const auto& stored : weights.tensors()) bytes[stored.file] += weights.bytes(stored).size();
      EXPECT_LE(std::max(bytes[0], bytes[1]), weights.data_bytes() / 2 + 4 * 32 * 32)
          << "half each, except for one tensor";
    });
}

TEST(FaceSaves, what_cannot_be_written_is_an_error_everywhere_and_the_former_state_stays) {
  const TemporaryFolder folder;
  const std::string saved = path_join(folder.path(), "state");
  for (const std::string type : {"sharded", "full"}) {
    const auto outcomes = run_ranks_outcomes(2, [&](comm::World& world) {
      Job job("adamw", of("full_shard", {"--save_state_dict_type=" + type}), 7);
      job.accelerator.save_state(saved);
      {
        const at::NoGradGuard no_grad;
        for (at::Tensor& part : job.accelerator.training().sharded().parameters())
          if (part.numel() > 0 && world.rank() == 1) part.fill_(std::numeric_limits<float>::quiet_NaN());
      }
      job.accelerator.save_state(saved);
    });
    EXPECT_NE(outcomes[0].error.find("not finite"), std::string::npos) << type << ": " << outcomes[0].error;
    EXPECT_NE(outcomes[0].error.find(saved + " is not saved: rank "), std::string::npos) << outcomes[0].error;
    EXPECT_FALSE(outcomes[1].ok);
    EXPECT_TRUE(format::verify_folder(saved).whole());
    EXPECT_EQ(list_folder(folder.path()), std::vector<std::string>{"state"}) << "no part of it remains";
  }
}

TEST(FaceSaves, what_a_dead_run_has_left_does_not_get_into_a_checkpoint) {
  const TemporaryFolder folder;
  const std::string saved = path_join(folder.path(), "state");
  make_folders(saved + ".tmp");
  write_file_atomically(saved + ".tmp/model.safetensors", "half");
  run_ranks(2, [&](comm::World&) {
    Job job("adamw", of("full_shard"), 7);
    job.accelerator.save_state(saved);
  });
  EXPECT_FALSE(path_exists(path_join(saved, "model.safetensors")));
  EXPECT_TRUE(format::verify_folder(saved).whole());
}

/// tests/parity/check_faces.py sets TESSERA_SAVES and opens the folders with Python's transformers.
TEST(FaceSaves, a_model_of_hugging_face_is_opened_as_it_is) {
  const TemporaryFolder temporary;
  const char* kept = std::getenv("TESSERA_SAVES");
  const std::string folder = kept != nullptr ? kept : temporary.path();
  run_ranks(2, [&](comm::World& world) {
    for (const char* face : {"accelerator", "deepspeed"}) {
      ModelConfig config;
      config.config_name = "gpt2-tiny";
      config.config_overrides = "vocab_size=257,bos_token_id=256,eos_token_id=256";
      const auto net = models::load_model(config, 3);
      at::manual_seed(4 + static_cast<std::uint64_t>(world.rank()));
      const at::Tensor ids = at::randint(257, {2, 16}, at::kLong);
      const auto loss = [&] { return net->loss(ids, ids, 1.0 / 30); };
      const at::Tensor prompt = at::arange(40).unsqueeze(0);
      at::Tensor logits;
      const auto see = [&] {  // while the parameters are gathered
        const at::NoGradGuard no_grad;
        net->eval();
        logits = net->logits(prompt);
      };
      const std::string out = path_join(folder, face), state = path_join(out, "state");
      const std::vector<std::string> arguments = {"--strategy=full_shard", "--learning_rate=0.01"};
      if (face == std::string("accelerator")) {
        Accelerator accelerator({.arguments = arguments});
        auto [model, optimizer] = accelerator.prepare(net, OptimizerSettings{.lr = 0.01});
        accelerator.backward(loss());
        optimizer.step();
        accelerator.save_model(out, 200'000);
        accelerator.save_state(state);
        see();
      } else {
        auto engine = initialize(net, {.arguments = arguments});
        engine.backward(loss());
        engine.step();
        engine.save_model(out);
        engine.save_checkpoint(out, "state");
        see();
      }
      if (world.rank() > 0) continue;
      EXPECT_EQ(format::SafetensorsFolder(out).sharded(), face == std::string("accelerator"));
      EXPECT_TRUE(format::SafetensorsFolder(state).sharded());
      for (const std::string& saved : {out, state}) {
        write_file_atomically(path_join(saved, "config.json"), dump_json(net->hf_config()));
        format::write_safetensors(path_join(saved, "expected"), {checkpoint::tensor_source("ids", prompt),
                                                                 checkpoint::tensor_source("logits", logits)});
        const at::NoGradGuard no_grad;
        const auto ours = models::load_folder(saved);
        ours->eval();
        EXPECT_LE((ours->logits(prompt) - logits).abs().max().item<double>(), 1e-5 * logits.abs().max().item<double>())
            << saved;
      }
    }
  });
}

/// Overflows before and after a checkpoint: with a hysteresis of 2 only the second one lowers the scale.
TEST(FaceSaves, a_dynamic_loss_scale_goes_on_exactly) {
  for (const bool consecutive : {false, true}) {
    const TemporaryFolder folder;
    run_ranks(2, [&](comm::World& world) {
      std::vector<std::string> arguments = {"--fp16", "--hysteresis=2", "--loss_scale_window=3", "--strategy=zero2"};
      if (consecutive) arguments.push_back("--consecutive_hysteresis");
      const auto live = [&](bool resume) {
        auto engine = initialize(make_net(), {.arguments = arguments});
        if (resume) engine.load_checkpoint(folder.path());
        std::vector<double> scales;
        for (int step = resume ? 3 : 0; step < 9; ++step) {
          if (step == 3 && !resume) engine.save_checkpoint(folder.path());
          const Batch batch = micro_batch(step, world.rank(), world.size());
          const at::Tensor loss = (engine(batch.x) - batch.y).square().mean();
          engine.backward(step == 2 || step == 3 || step == 7 ? loss * 1e37 : loss);
          engine.step();
          if (step >= 3) scales.push_back(engine.loss_scale());
        }
        return scales;
      };
      const std::vector<double> want = live(false);
      EXPECT_EQ(want.front(), 32768) << "the second overflow, after the checkpoint";
      EXPECT_EQ(live(true), want);
    });
  }
}

}  // namespace
