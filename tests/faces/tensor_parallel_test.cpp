// --tp_size in the faces: a user's module with a plan, our models with their own, on several real processes against
// one.
#include <tests/faces/loop.h>
#include <tests/tensor/user_nets.h>

#include <tessera/base/file.h>
#include <tessera/faces/accelerator.h>
#include <tessera/faces/deepspeed.h>
#include <tessera/faces/trainer.h>
#include <tessera/models/load.h>

#include <torch/optim/adamw.h>

#include <filesystem>

namespace {

using namespace tessera;
using namespace tessera::testing;

constexpr int kSteps = 4;
constexpr double kRate = 0.01;
/// Adam's epsilon: large, because the gradients of key biases are pure rounding noise, which Adam's default would turn
/// into full-size steps.
constexpr double kEpsilon = 1e-3;
torch::optim::AdamWOptions adam_options() { return torch::optim::AdamWOptions(kRate).weight_decay(0.01).eps(kEpsilon); }
OptimizerSettings own_adam() { return {.lr = kRate, .weight_decay = 0.01, .arguments = concat("eps=", kEpsilon)}; }

/// ids int64 [rows of all ranks, tokens + 1] of a step.
at::Tensor step_ids(int step) {
  at::Generator generator = at::detail::getDefaultCPUGenerator().clone();
  generator.set_current_seed(170 + static_cast<std::uint64_t>(step));
  return at::randint(0, net_vocabulary, {net_rows, net_tokens + 1}, generator, at::kLong);
}
at::Tensor loss_on(const at::Tensor& logits, const at::Tensor& ids) {
  return at::cross_entropy_loss(logits.reshape({-1, net_vocabulary}), ids.narrow(1, 1, net_tokens).reshape({-1}));
}
at::Tensor inputs(const at::Tensor& ids) { return ids.narrow(1, 0, net_tokens); }

/// A different seed gives different values.
std::shared_ptr<HeadsNetImpl> user_net(std::uint64_t seed = 21) {
  at::manual_seed(seed);
  return std::make_shared<HeadsNetImpl>();
}
std::shared_ptr<models::LanguageModel> our_model(const char* preset) {
  ModelConfig config;
  config.config_name = preset;
  config.config_overrides = concat("vocab_size=", net_vocabulary);
  auto model = models::load_language_model(config, 3);
  model->eval();  // without dropout
  return model;
}

/// One process, the whole batch, AdamW; clipped to norm 1.
template <class M>
Weights train_alone(const std::shared_ptr<M>& net, int steps = kSteps) {
  torch::optim::AdamW adam(net->parameters(), adam_options());
  for (int step = 0; step < steps; ++step) {
    net->zero_grad();
    loss_on(net->forward(inputs(step_ids(step))), step_ids(step)).backward();
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& p : net->parameters()) gradients.push_back(p.grad());
    const double factor = optim::clip_coefficient(optim::gradient_norm(gradients), 1.0);
    for (at::Tensor& gradient : gradients) gradient.mul_(factor);
    adam.step();
  }
  Weights weights;
  for (const auto& p : net->named_parameters()) weights[p.key()] = p.value().detach().clone();
  return weights;
}

struct Mesh {
  int ranks;
  std::vector<std::string> flags;
};
const std::vector<Mesh>& meshes() {
  static const std::vector<Mesh> all = {{2, {"--tp_size=2"}},
                                        {2, {"--tp_size=2", "--sequence_parallel"}},
                                        {4, {"--tp_size=2", "--strategy=full_shard"}},
                                        {4, {"--tp_size=2", "--sequence_parallel", "--strategy=zero1"}}};
  return all;
}

/// This rank's rows: as many parts as there are tp groups.
at::Tensor own_rows(const at::Tensor& ids, const faces::Training& training) {
  return ids.chunk(training.group().size())[training.group().rank()];
}

/// Steps [from, to) of the user's loop with an optimizer of torch, or one of ours.
template <class M>
void loop(Accelerator& accelerator, PreparedModel<M>& model, PreparedOptimizer& optimizer, int from, int to) {
  for (int step = from; step < to; ++step) {
    const at::Tensor ids = own_rows(step_ids(step), model.training());
    const auto scope = accelerator.accumulate(model);
    accelerator.backward(loss_on(model(inputs(ids)), ids));
    accelerator.clip_grad_norm_(1.0);
    optimizer.step();
    optimizer.zero_grad();
  }
}

void expect_whole(const StateDict& got, const Weights& want, const std::string& what) {
  for (const auto& [name, value] : want) {
    ASSERT_TRUE(got.contains(name)) << what << ": " << name;
    ASSERT_EQ(got.at(name).sizes(), value.sizes()) << what << ": " << name;
    EXPECT_LE((got.at(name) - value).abs().max().item<double>(), 2e-5) << what << ": " << name;
  }
}

TEST(FacesTensorParallel, accelerator_equals_one_process_for_a_users_module) {
  const Weights want = train_alone(user_net());
  for (const Mesh& mesh : meshes())
    run_ranks(mesh.ranks, [&](comm::World& world) {
      Accelerator accelerator({.tp_plan = heads_plan(), .arguments = mesh.flags});
      auto net = user_net(world.rank() == 0 ? 21 : 99);  // rank 0's weights are used by all
      torch::optim::AdamW adam(net->parameters(), adam_options());
      auto [model, optimizer] = accelerator.prepare(net, adam);
      loop(accelerator, model, optimizer, 0, kSteps);
      EXPECT_EQ(accelerator.num_processes(), mesh.ranks);
      EXPECT_EQ(model.training().group().size(), mesh.ranks / 2);
      const StateDict whole = accelerator.get_state_dict(model);
      if (world.rank() == 0) expect_whole(whole, want, join(mesh.flags));
    });
}

TEST(FacesTensorParallel, accelerator_equals_one_process_for_our_models) {
  for (const char* preset : {"gpt2-tiny", "llama-tiny"}) {
    const Weights want = train_alone(our_model(preset));
    for (const Mesh& mesh : meshes())
      run_ranks(mesh.ranks, [&](comm::World& world) {
        Accelerator accelerator({.arguments = mesh.flags});
        auto [model, optimizer] = accelerator.prepare(our_model(preset), own_adam());
        model.eval();
        loop(accelerator, model, optimizer, 0, kSteps);
        const StateDict whole = accelerator.get_state_dict(model);
        if (world.rank() == 0) expect_whole(whole, want, concat(preset, " ", join(mesh.flags)));
      });
  }
}

/// Saved under tp, continued under FSDP with tp and by one process, with torch's optimizer and with ours.
TEST(FacesTensorParallel, a_state_of_one_mesh_continues_on_any_other) {
  const Weights want = train_alone(user_net());
  const TemporaryFolder folder;
  for (const bool torchs : {true, false}) {
    const std::string saved = path_join(folder.path(), torchs ? "torchs" : "ours");
    const auto go = [&](const std::vector<std::string>& flags, int from, int to, bool saves) {
      const bool cut = !flags.empty();
      Accelerator accelerator({.tp_plan = cut ? heads_plan() : TensorPlan(), .arguments = flags});
      auto net = user_net();
      torch::optim::AdamW adam(net->parameters(), adam_options());
      const auto train = [&](auto prepared) {
        auto& [model, optimizer] = prepared;
        if (from > 0) accelerator.load_state(saved);
        loop(accelerator, model, optimizer, from, to);
        if (saves) accelerator.save_state(saved);
        return accelerator.get_state_dict(model);
      };
      const StateDict whole =
          torchs ? train(accelerator.prepare(net, adam)) : train(accelerator.prepare(net, own_adam()));
      if (!saves && accelerator.is_main_process()) expect_whole(whole, want, concat(saved, " ", join(flags)));
    };
    run_ranks(4, [&](comm::World&) { go({"--tp_size=2", "--strategy=full_shard"}, 0, 2, true); });
    run_ranks(2, [&](comm::World&) { go({"--tp_size=2"}, 2, kSteps, false); });
    run_ranks(1, [&](comm::World&) { go({}, 2, kSteps, false); });
  }
}

/// save_model() writes the bytes of the state that every rank sees, however the module is cut.
TEST(FacesTensorParallel, a_saved_model_is_whole) {
  const TemporaryFolder folder;
  run_ranks(1, [&](comm::World&) {
    Accelerator accelerator;
    auto [model, optimizer] = accelerator.prepare(user_net(), OptimizerSettings{});
    accelerator.save_model(path_join(folder.path(), "alone"));
  });
  run_ranks(4, [&](comm::World&) {
    Accelerator accelerator({.tp_plan = heads_plan(), .arguments = {"--tp_size=2", "--strategy=full_shard"}});
    auto [model, optimizer] = accelerator.prepare(user_net(), OptimizerSettings{});
    accelerator.save_model(path_join(folder.path(), "cut"));
  });
  EXPECT_EQ(read_file(path_join(folder.path(), "alone/model.safetensors")),
            read_file(path_join(folder.path(), "cut/model.safetensors")));
}

TEST(FacesTensorParallel, loaders_and_gather_are_over_the_ranks_with_other_rows) {
  run_ranks(4, [&](comm::World& world) {
    Accelerator accelerator({.tp_plan = heads_plan(), .arguments = {"--tp_size=2"}});
    DataLoader loader = accelerator.prepare(DataLoader(tensor_rows({at::arange(10)}), {.batch_size = 2}));
    std::vector<at::Tensor> seen;
    for (const auto& batch : loader) seen.push_back(accelerator.gather_for_metrics(batch[0]));
    EXPECT_TRUE(at::equal(at::cat(seen), at::arange(10))) << at::cat(seen);
    EXPECT_EQ(accelerator.reduce(at::ones({1})).item<float>(), 2);
    const auto own = accelerator.split_between_processes(std::vector<int>{1, 2, 3, 4});
    EXPECT_EQ(own, world.rank() < 2 ? (std::vector<int>{1, 2}) : (std::vector<int>{3, 4}));
  });
}

TEST(FacesTensorParallel, the_deepspeed_engine_follows_autotp_size) {
  const Weights want = train_alone(user_net());
  for (const int ranks : {2, 4})
    run_ranks(ranks, [&](comm::World& world) {
      const std::string json = concat(R"({"train_micro_batch_size_per_gpu": )", net_rows * 2 / ranks, R"(,
          "gradient_clipping": 1.0, "zero_optimization": {"stage": )",
                                      ranks == 2 ? 0 : 3, R"(},
          "tensor_parallel": {"autotp_size": 2},
          "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.01, "eps": 1e-3}}})");
      auto engine = initialize(user_net(), {.config = json, .tp_plan = heads_plan()});
      EXPECT_EQ(engine.world_size(), ranks);
      EXPECT_EQ(engine.dp_world_size(), ranks / 2);
      EXPECT_EQ(engine.train_batch_size(), net_rows);
      for (int step = 0; step < kSteps; ++step) {
        const at::Tensor ids = own_rows(step_ids(step), engine.training());
        engine.backward(loss_on(engine(inputs(ids)), ids));
        engine.step();
      }
      const StateDict whole = engine.module_state_dict();
      if (world.rank() == 0) expect_whole(whole, want, concat(ranks, " ranks"));
      const auto module = std::shared_ptr<HeadsNetImpl>(&engine.module(), [](HeadsNetImpl*) {});
      engine.destroy();
      for (const auto& p : module->named_parameters())
        EXPECT_EQ(p.value().sizes(), want.at(p.key()).sizes()) << "whole again: " << p.key();
    });
}

TEST(FacesTensorParallel, the_trainer_equals_one_process_and_resumes) {
  const TemporaryFolder folder;
  std::vector<at::Tensor> rows;
  for (int step = 0; step < kSteps; ++step) rows.push_back(step_ids(step));
  const auto options = [&](const std::vector<std::string>& more) {
    TrainerOptions given;
    given.model = user_net();
    given.arguments = TrainingArguments(
        more, {"--learning_rate=0.01", "--weight_decay=0.01", "--adam_epsilon=1e-3", "--lr_scheduler_type=constant",
               "--train_sampling_strategy=sequential", "--num_train_epochs=1", "--disable_tqdm", "--save_steps=2",
               "--max_grad_norm=1", "--logging_steps=1"});
    given.loss = loss_of<HeadsNetImpl>(
        [](HeadsNetImpl& net, const TensorBatch& batch) { return loss_on(net.forward(inputs(batch[0])), batch[0]); });
    given.train_dataset = given.eval_dataset = tensor_rows({at::cat(rows)});
    return given;
  };
  const auto losses = [](const Trainer& trainer) {
    std::vector<double> all;
    for (const Value& entry : trainer.state().log_history)
      if (const Value* loss = entry.find("loss")) all.push_back(loss->as_real());
    return all;
  };
  std::vector<double> want(kSteps + 1);
  const std::string alone = path_join(folder.path(), "alone");
  run_ranks(1, [&](comm::World&) {
    Trainer trainer(options({"--per_device_train_batch_size=4", "--output_dir=" + alone}));
    trainer.train();
    std::vector<double> all = losses(trainer);
    all.push_back(trainer.evaluate().at("eval_loss"));
    std::string text;
    for (const double loss : all) text += concat(format_real(loss, 17), "\n");
    write_file_atomically(path_join(folder.path(), "losses"), text);
  });
  const std::vector<std::string> lines = split(read_file(path_join(folder.path(), "losses")), '\n');
  for (std::size_t i = 0; i < want.size(); ++i) want[i] = std::stod(lines.at(i));
  const auto check = [&](Trainer& trainer, std::size_t first, const std::string& what) {
    const std::vector<double> all = losses(trainer);
    ASSERT_EQ(all.size(), kSteps - first) << what;
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_NEAR(all[i], want[first + i], 1e-5 * want[first + i]) << what;
    EXPECT_NEAR(trainer.evaluate().at("eval_loss"), want.back(), 1e-5 * want.back()) << what;
  };
  const std::string cut = path_join(folder.path(), "cut");
  run_ranks(4, [&](comm::World&) {
    TrainerOptions given =
        options({"--per_device_train_batch_size=2", "--tp_size=2", "--strategy=full_shard", "--output_dir=" + cut});
    given.tp_plan = heads_plan();
    Trainer trainer(std::move(given));
    trainer.train();
    check(trainer, 0, "tp2 x fsdp2");
  });
  std::filesystem::remove_all(path_join(cut, "checkpoint-4"));
  run_ranks(2, [&](comm::World&) {
    TrainerOptions given = options({"--per_device_train_batch_size=4", "--tp_size=2", "--sequence_parallel",
                                    "--output_dir=" + cut, "--resume_from_checkpoint=last"});
    given.tp_plan = heads_plan();
    Trainer trainer(std::move(given));
    trainer.train();
    check(trainer, 2, "resumed with tp2, sequence parallel");
  });
}

/// Settings that cannot work are refused rather than changed.
TEST(FacesTensorParallel, what_cannot_work_is_refused_with_its_remedy) {
  run_ranks(2, [](comm::World& all) {
    const auto refuses = [](const std::function<void()>& call, const std::vector<std::string>& parts) {
      try {
        call();
        ADD_FAILURE() << "was accepted: " << join(parts);
      } catch (const std::exception& error) {
        if (parts.front() == "tp_size 3" && world().rank() > 0) return;  // only rank 0 gives the reason
        EXPECT_NE(dynamic_cast<const InputError*>(&error), nullptr) << error.what();
        for (const std::string& part : parts)
          EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      }
    };
    refuses([] { Accelerator({.arguments = {"--pp_size=2"}}); }, {"pp_size 2", "PipelineParallel"});
    refuses([] { Accelerator({.arguments = {"--cp_size=2"}}); }, {"cp_size 2", "context_attention"});
    refuses([] { Accelerator({.arguments = {"--ep_size=2"}}); }, {"ep_size 2", "tessera::Experts"});
    refuses([] { Accelerator({.tp_plan = heads_plan()}); }, {"tp_plan", "tp_size is 1"});
    refuses([] { Accelerator({.arguments = {"--tp_size=3"}}); }, {"tp_size 3"});
    Accelerator accelerator({.arguments = {"--tp_size=2"}});
    refuses([&] { accelerator.prepare(user_net(), OptimizerSettings{}); }, {"tp_size 2", "tp_plan", "full_shard"});
    refuses([&] { accelerator.prepare(user_net(), OptimizerSettings{.name = "lamb"}); }, {"lamb", "tp_size 2"});
    refuses([&] { accelerator.prepare(our_model("mixtral-tiny"), OptimizerSettings{}); }, {"mixture of experts"});
    refuses(
        [&] { initialize(user_net(), {.arguments = {"--tp_size=2"}, .group = all.group(), .tp_plan = heads_plan()}); },
        {"tp_size 2", "group"});
  });
}

}  // namespace
