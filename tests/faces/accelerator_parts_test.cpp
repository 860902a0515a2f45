// The parts of tessera::Accelerator other than the loop itself: seeds, objects, whole weights, trackers, memory, order.
#include <tests/faces/loop.h>
#include <tests/faces/mixed_model.h>
#include <tests/faces/types_seen.h>

#include <tessera/base/file.h>
#include <tessera/checkpoint/tensor_bridge.h>
#include <tessera/faces/accelerator.h>

#include <ATen/Context.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <set>

namespace {

using namespace tessera;
using namespace tessera::testing;

TEST(AcceleratorParts, seeds_are_the_same_on_all_processes_or_one_for_each) {
  run_ranks(3, [](comm::World&) {
    const Accelerator accelerator;
    const auto drawn = [&](bool device_specific) {
      set_seed(5, device_specific);
      const at::Tensor all = accelerator.gather(at::rand({1}));
      std::set<float> values;
      for (std::int64_t i = 0; i < all.size(0); ++i) values.insert(all[i].item<float>());
      return values.size();
    };
    EXPECT_EQ(drawn(false), 1u);
    EXPECT_EQ(drawn(true), 3u);
    set_seed(5);
    const at::Tensor once = at::rand({4});
    set_seed(5);
    EXPECT_TRUE(at::equal(at::rand({4}), once));
    EXPECT_FALSE(at::globalContext().deterministicAlgorithms());
    set_seed(5, false, /*deterministic=*/true);
    EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
  });
}

TEST(AcceleratorParts, objects_and_several_tensors_are_gathered) {
  run_ranks(3, [](comm::World& world) {
    const Accelerator accelerator;
    std::vector<std::string> mine;  // one per lower rank
    for (int i = 0; i < world.rank(); ++i) mine.push_back(concat("rank ", world.rank(), " \"", i, "\""));
    EXPECT_EQ(accelerator.gather_object(mine),
              (std::vector<std::string>{"rank 1 \"0\"", "rank 2 \"0\"", "rank 2 \"1\""}));
    const auto values = accelerator.gather_object(std::vector<Value>{Value::of(world.rank()), Value::of(0.5)});
    ASSERT_EQ(values.size(), 6u);
    EXPECT_EQ(values[4].as_int(), 2);
    EXPECT_EQ(values[5].as_real(), 0.5);
    const auto both = accelerator.gather(std::vector{at::full({1}, world.rank()), at::ones({2, 2})});
    EXPECT_TRUE(at::equal(both.at(0), at::arange(3)));
    EXPECT_EQ(both.at(1).size(0), 6);
    EXPECT_EQ(accelerator.reduce(at::ones({1}), comm::Reduction::sum, 0.5).item<float>(), 1.5);
  });
}

TEST(AcceleratorParts, whole_weights_and_buffers_come_by_name) {
  const TemporaryFolder folder;
  const std::string path = path_join(folder.path(), "weights.safetensors");
  run_ranks(2, [&](comm::World& world) {
    for (const char* strategy : {"ddp", "zero2", "full_shard"}) {
      Accelerator accelerator({.arguments = {concat("--strategy=", strategy)}});
      const auto plain = make_mixed(3);
      auto [model, optimizer] = accelerator.prepare(make_mixed(3), OptimizerSettings{});
      const StateDict state = accelerator.get_state_dict(model);
      if (strategy == std::string("full_shard") && world.rank() > 0) {
        EXPECT_TRUE(state.empty()) << "as in Accelerate's FSDP";
      } else {
        std::size_t expected = 0;
        for (const auto& list : {plain->named_parameters(), plain->named_buffers()})
          for (const auto& item : list) {
            ++expected;
            ASSERT_TRUE(state.contains(item.key())) << strategy << ": " << item.key();
            EXPECT_TRUE(at::equal(state.at(item.key()), item.value())) << strategy << ": " << item.key();
          }
        EXPECT_EQ(state.size(), expected);
      }
      accelerator.save(state, path);
      accelerator.wait_for_everyone();
      const format::SafetensorsFile file(path);
      const format::TensorInfo* weight = file.find("in.weight");
      ASSERT_NE(weight, nullptr);
      EXPECT_TRUE(at::equal(checkpoint::read_tensor(file, *weight), plain->in->weight));
      accelerator.wait_for_everyone();
      if (accelerator.is_main_process()) remove_tree(path);
      accelerator.wait_for_everyone();
    }
  });
}

TEST(AcceleratorParts, a_device_that_this_process_has_not_is_refused) {
  run_ranks(1, [](comm::World&) {
    EXPECT_THROW(Accelerator({.arguments = {"--device", "cuda"}}), InputError);
    EXPECT_TRUE(Accelerator({.arguments = {"--device", "auto"}}).device().is_cpu());
  });
}

TEST(AcceleratorParts, free_memory_lets_go_of_everything) {
  run_ranks(2, [](comm::World& world) {
    Accelerator accelerator;
    const std::shared_ptr<SimpleModel> net = make_net();
    const auto data = std::make_shared<int>(0);
    const RowSource rows{8, [data](const std::vector<std::int64_t>& rows) {
                           return std::vector<at::Tensor>{at::ones({static_cast<std::int64_t>(rows.size()), 12})};
                         }};
    {
      DataLoader unprepared(rows, {.batch_size = 2});
      auto [model, optimizer, loader, scheduler] = accelerator.prepare(net, OptimizerSettings{.lr = 1}, unprepared,
                                                                       optim::Schedule{.type = ScheduleType::constant});
      EXPECT_GT(net.use_count(), 1);
      accelerator.free_memory(model, optimizer, loader, scheduler);
      EXPECT_EQ(net.use_count(), 1);
      EXPECT_THROW(model(at::ones({1, 12})), InputError);
      EXPECT_THROW(optimizer.step(), InputError);
      EXPECT_THROW(scheduler.step(), InputError);
      EXPECT_EQ(loader.size(), 0);
      unprepared.release();
    }
    EXPECT_EQ(data.use_count(), 2) << "here and in rows";
    EXPECT_THROW(accelerator.training(), InputError) << "nothing was prepared";
    auto [model, optimizer] = accelerator.prepare(make_net(), OptimizerSettings{.lr = 0.1});
    EXPECT_EQ(&accelerator.training(), &model.training());
    const auto scope = accelerator.accumulate(model);
    accelerator.backward(model(at::ones({2, 12}) * world.rank()).square().mean());
    optimizer.step();
    accelerator.clear(model, optimizer);
    EXPECT_THROW(accelerator.training(), InputError);
  });
}

TEST(AcceleratorParts, the_type_of_distribution_and_the_settings_can_be_asked) {
  for (const int ranks : {1, 2})
    run_ranks(ranks, [&](comm::World& world) {
      const auto type_of = [](const char* strategy) {
        return Accelerator({.arguments = {concat("--strategy=", strategy)}}).distributed_type();
      };
      const bool one = world.size() == 1;
      EXPECT_EQ(type_of("ddp"), one ? DistributedType::no : DistributedType::multi_cpu);
      EXPECT_EQ(type_of("full_shard"), one ? DistributedType::no : DistributedType::fsdp);
      EXPECT_EQ(type_of("shard_grad_op"), one ? DistributedType::no : DistributedType::fsdp);
      EXPECT_EQ(type_of("zero1"), DistributedType::deepspeed);
      EXPECT_EQ(type_of("zero3"), DistributedType::deepspeed);
      const Accelerator accelerator({.split_batches = true, .even_batches = false, .project_dir = "p"}), plain;
      EXPECT_EQ(accelerator.use_distributed(), !one);
      EXPECT_TRUE(accelerator.split_batches() && !plain.split_batches());
      EXPECT_TRUE(!accelerator.even_batches() && plain.even_batches());
      EXPECT_EQ(accelerator.logging_dir(), "p");
      EXPECT_EQ(Accelerator({.project_dir = "p", .logging_dir = "l"}).logging_dir(), "l");
      int ran = 0;
      accelerator.on_local_process(world.size() - 1, [&] { ++ran; });
      EXPECT_EQ(ran, world.rank() == world.size() - 1 ? 1 : 0);
    });
}

TEST(AcceleratorParts, the_local_main_process_goes_first) {
  const TemporaryFolder folder;
  const std::string file = path_join(folder.path(), "made");
  run_ranks(3, [&](comm::World&) {
    const Accelerator accelerator;
    const auto scope = accelerator.local_main_process_first();
    EXPECT_EQ(path_exists(file), !accelerator.is_local_main_process());
    if (accelerator.is_local_main_process()) write_file_atomically(file, "x");
  });
}

/// A step whose first backward keeps its gradients local, and whose second is again inside no_sync().
Weights two_backwards(bool trigger) {
  Accelerator accelerator({.arguments = {"--strategy=ddp"}});
  auto [model, optimizer] = accelerator.prepare(make_net(), OptimizerSettings{.name = "sgd", .lr = 0.1});
  const auto loss = [&](int step) {
    const Batch batch = micro_batch(step, accelerator.process_index(), accelerator.num_processes());
    return (model(batch.x) - batch.y).square().mean();
  };
  {
    const auto quiet = accelerator.no_sync(model);
    accelerator.backward(loss(0));
    if (trigger) {
      const auto loud = accelerator.trigger_sync_in_backward(model);
      accelerator.backward(loss(1));
    }
  }
  if (!trigger) accelerator.backward(loss(1));
  optimizer.step();
  return weights_of(accelerator.training().sharded());
}

TEST(AcceleratorParts, a_backward_inside_of_no_sync_may_reduce_what_was_kept) {
  const auto plain = make_net();
  for (int step = 0; step < 2; ++step)
    for (int rank = 0; rank < 2; ++rank) (mean_loss(*plain, micro_batch(step, rank, 2)) / 2).backward();
  Weights want;
  for (const auto& p : plain->named_parameters()) want[p.key()] = p.value().detach() - 0.1 * p.value().grad();
  run_ranks(2, [&](comm::World&) {
    for (const bool trigger : {false, true}) expect_close(two_backwards(trigger), want, 1e-6, concat(trigger));
  });
}

TEST(AcceleratorParts, the_values_of_one_models_gradients_are_clipped) {
  run_ranks(2, [](comm::World& world) {
    Accelerator accelerator({.arguments = {"--strategy=ddp"}});
    auto [a, b, optimizer_a, optimizer_b] =
        accelerator.prepare(make_net(), make_net(), OptimizerSettings{}, OptimizerSettings{});
    const Batch batch = micro_batch(0, world.rank(), world.size());
    accelerator.backward((a(batch.x) - batch.y).square().mean() + (b(batch.x) - batch.y).square().mean());
    accelerator.clip_grad_value_(a, 1e-6);
    const auto largest = [](faces::Training& training) {
      double most = 0;
      for (const at::Tensor& p : training.sharded().parameters())
        if (p.grad().defined() && p.grad().numel() > 0) most = std::max(most, p.grad().abs().max().item<double>());
      return most;
    };
    EXPECT_LE(largest(a.training()), 1.1e-6);
    EXPECT_GT(largest(b.training()), 1e-4);
  });
}

TEST(AcceleratorParts, values_are_clipped_after_the_norm_and_hide_no_overflow) {
  run_ranks(2, [](comm::World&) {
    for (const char* strategy : {"ddp", "full_shard"}) {
      const std::vector<std::string> arguments = {concat("--strategy=", strategy)};
      const OptimizerSettings sgd{.name = "sgd", .lr = 1};
      const auto linear = std::make_shared<torch::nn::LinearImpl>(12, 1);
      {
        const at::NoGradGuard no_grad;
        for (const at::Tensor& p : linear->parameters()) p.zero_();
      }
      Accelerator accelerator({.arguments = arguments});
      auto [model, optimizer] = accelerator.prepare(linear, sgd);
      const at::Tensor x = at::arange(12, at::kFloat);
      accelerator.backward(model(x.view({1, 12})).sum());
      const double norm = accelerator.clip_grad_norm_(2);
      accelerator.clip_grad_value_(0.5);
      optimizer.step();
      const at::Tensor want = -(x * optim::clip_coefficient(norm, 2)).clamp(-0.5, 0.5);
      const at::Tensor got = weights_of(accelerator.training().sharded()).at("weight").view({12});
      EXPECT_LE((got - want).abs().max().item<double>(), 1e-6) << strategy << " " << got;
      Accelerator half({.mixed_precision = "fp16", .arguments = arguments});
      auto [narrow, narrow_optimizer] = half.prepare(std::make_shared<torch::nn::LinearImpl>(12, 1), sgd);
      half.backward(narrow(at::ones({2, 12})).sum() * 1e37);  // infinite when scaled; must never become 0 * infinity
      half.clip_grad_value_(0.5);
      narrow_optimizer.step();
      EXPECT_TRUE(half.optimizer_step_was_skipped()) << strategy;
    }
  });
}

TEST(AcceleratorParts, an_optimizer_or_a_schedule_in_deepspeeds_json_is_refused_and_its_clipping_acts) {
  const Weights want = [] {
    const auto net = make_net();
    std::vector<at::Tensor> gradients;
    for (int rank = 0; rank < 2; ++rank) (mean_loss(*net, micro_batch(0, rank, 2)) / 2).backward();
    for (const at::Tensor& p : net->parameters()) gradients.push_back(p.grad());
    const double factor = optim::clip_coefficient(optim::gradient_norm(gradients), 0.01);
    EXPECT_LT(factor, 0.5) << "clipping matters here";
    Weights weights;
    for (const auto& p : net->named_parameters()) weights[p.key()] = p.value().detach() - factor * p.value().grad();
    return weights;
  }();
  run_ranks(2, [&](comm::World& world) {
    const auto with = [](const std::string& more) {
      return AcceleratorOptions{
          .arguments = {
              concat(R"(--deepspeed={"train_micro_batch_size_per_gpu": 12, "gradient_accumulation_steps": 1,)",
                     R"("zero_optimization": {"stage": 2})", more, "}")}};
    };
    EXPECT_THROW(Accelerator(with(R"(, "optimizer": {"type": "Adam", "params": {"lr": 0.1}})")), InputError);
    EXPECT_THROW(Accelerator(with(R"(, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 5}})")),
                 InputError);
    Accelerator accelerator(with(R"(, "gradient_clipping": 0.01)"));
    auto [model, optimizer] = accelerator.prepare(make_net(), OptimizerSettings{.name = "sgd", .lr = 1});
    const Batch batch = micro_batch(0, world.rank(), 2);
    accelerator.backward((model(batch.x) - batch.y).square().mean());
    optimizer.step();
    expect_close(weights_of(accelerator.training().sharded()), want, 1e-6, "clipped");
    Accelerator filled(with(R"(, "gradient_clipping": "auto")"));
    auto [other, other_optimizer] = filled.prepare(make_net(), OptimizerSettings{.name = "sgd", .lr = 1});
    const Weights before = weights_of(filled.training().sharded());
    filled.backward(other(batch.x).sum() * 1000);
    other_optimizer.step();
    double squares = 0;
    for (const auto& [name, value] : weights_of(filled.training().sharded()))
      squares += (value - before.at(name)).square().sum().item<double>();
    EXPECT_NEAR(std::sqrt(squares), 1, 1e-3) << "Accelerate fills in 1";
  });
}

TEST(AcceleratorParts, the_loader_that_is_read_says_what_is_the_last_batch) {
  run_ranks(2, [](comm::World&) {
    Accelerator accelerator({.gradient_accumulation_steps = 4});
    auto [model, optimizer, training, evaluation] = accelerator.prepare(
        make_net(), OptimizerSettings{}, DataLoader(tensor_rows({at::ones({9, 12})}), {.batch_size = 2}),
        DataLoader(tensor_rows({at::arange(16)}), {.batch_size = 2}));
    DataLoader& evaluated = evaluation;
    const auto rows_evaluated = [&] {
      std::int64_t rows = 0;
      for (const auto& batch : evaluated) rows += accelerator.gather_for_metrics(batch[0]).size(0);
      return rows;
    };
    std::int64_t rows = 0;
    for (const auto& batch : training) {
      EXPECT_EQ(rows_evaluated(), 16) << "inside a pass";
      rows += accelerator.gather_for_metrics(batch[0]).size(0);
    }
    EXPECT_EQ(rows, 9) << "the enclosing pass continues";
    for ([[maybe_unused]] const auto& batch : training)
      if (training.state().end_of_loader) break;
    EXPECT_EQ(rows_evaluated(), 16) << "after leaving a pass at its last batch";
    int steps = 0;
    for ([[maybe_unused]] const auto& batch : evaluated) {
      const auto scope = accelerator.accumulate();
      steps += accelerator.sync_gradients() ? 1 : 0;
    }
    EXPECT_EQ(steps, 1) << "four micro-batches";
  });
}

/// A module without state on rank 1.
struct Stateless : Stateful {
  Value state() const override {
    if (world().rank() == 1) throw InputError("there is no state here");
    return Value::of(1);
  }
  void load_state(const Value&) override {}
};

TEST(AcceleratorParts, an_object_that_fails_on_one_rank_fails_the_save_on_all) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World&) {
    Accelerator accelerator;
    auto [model, optimizer] = accelerator.prepare(make_net(), OptimizerSettings{});
    Stateless object;
    accelerator.register_for_checkpointing(object);
    EXPECT_THROW(accelerator.save_state(path_join(folder.path(), "state")), Error);
    EXPECT_FALSE(path_exists(path_join(folder.path(), "state")));
  });
}

TEST(AcceleratorParts, who_a_process_is_can_be_asked_after_the_job_is_left) {
  for (const char* strategy : {"ddp", "full_shard"})
    run_ranks(2, [&](comm::World& world) {
      const int rank = world.rank();
      Accelerator accelerator({.arguments = {concat("--strategy=", strategy)}});
      auto [model, optimizer] = accelerator.prepare(make_net(), OptimizerSettings{});
      accelerator.backward(model(at::ones({2, 12})).square().mean());
      optimizer.step();
      accelerator.end_training();
      EXPECT_FALSE(initialized());
      EXPECT_EQ(accelerator.process_index(), rank);
      EXPECT_EQ(accelerator.is_main_process(), rank == 0);
      EXPECT_EQ(accelerator.num_processes(), 2);
      EXPECT_TRUE(accelerator.device().is_cpu());
      EXPECT_THROW(accelerator.wait_for_everyone(), Error);
      EXPECT_THROW(accelerator.gather(at::ones({1})), Error);
    });
  run_ranks(1, [](comm::World&) {
    Accelerator accelerator;
    const auto leave_inside = [&] {
      const auto scope = accelerator.main_process_first();
      accelerator.end_training();
    };
    EXPECT_THROW(leave_inside(), Error) << "the end of a scope may fail";
  });
}

TEST(AcceleratorParts, what_goes_into_narrow_weights_becomes_as_narrow) {
  run_ranks(2, [](comm::World&) {
    for (const char* strategy : {"full_shard", "zero2"}) {
      Accelerator accelerator({.arguments = {concat("--strategy=", strategy), "--bf16", "--param_dtype=bf16"}});
      const auto net = std::make_shared<TypesSeen>();
      auto [model, optimizer] = accelerator.prepare(net, OptimizerSettings{});
      const at::Tensor loss = model(at::ones({2, 12})).square().mean();
      EXPECT_EQ(net->weights, at::kBFloat16) << strategy;
      EXPECT_EQ(net->input, at::kBFloat16) << "as with FSDP's cast_forward_inputs";
      EXPECT_EQ(loss.scalar_type(), at::kFloat);
      accelerator.backward(loss);
      optimizer.step();
    }
  });
}

/// Lines passed to a user's own tracker.
struct Heard : Tracker {
  explicit Heard(std::vector<std::string>& lines) : lines(lines) {}
  void start(const std::string& project, const Value& config) override {
    lines.push_back(concat("start ", project, " ", dump_json(config, -1)));
  }
  void log(const Value& values, std::int64_t step) override {
    lines.push_back(concat("log ", step, " ", dump_json(values, -1)));
  }
  void finish() override { lines.push_back("finish"); }
  std::vector<std::string>& lines;
};

TEST(AcceleratorParts, what_is_logged_reaches_every_tracker_from_the_main_process) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World&) {
    std::vector<std::string> lines;
    Accelerator accelerator({.project_dir = folder.path(),
                             .log_with = {"tensorboard", "jsonl"},
                             .trackers = {std::make_shared<Heard>(lines)}});
    accelerator.log(Value::make_object({{"lost", Value::of(1)}}));  // no trackers exist yet
    accelerator.init_trackers("run", Value::make_object({{"lr", Value::of(0.5)}}));
    accelerator.log(Value::make_object({{"loss", Value::of(2.5)}, {"note", Value::of("a text")}}), 7);
    accelerator.log(Value::make_object({{"loss", Value::of(1)}}));
    EXPECT_THROW(accelerator.log(Value::make_object({{"bad", Value::of(true)}})), InputError);
    EXPECT_THROW(Accelerator({.project_dir = "x", .log_with = {"wandb"}}).init_trackers("run"), InputError);
    EXPECT_THROW(Accelerator({.log_with = {"jsonl"}}).init_trackers("run"), InputError) << "where to?";
    accelerator.end_training();
    EXPECT_FALSE(initialized()) << "the job has been left";
    if (!accelerator.is_main_process()) {
      EXPECT_TRUE(lines.empty());
    } else {
      EXPECT_EQ(lines, (std::vector<std::string>{"start run {\"lr\":0.5}", "log 7 {\"loss\":2.5,\"note\":\"a text\"}",
                                                 "log 2 {\"loss\":1}", "finish"}));
    }
  });
  const std::string run = path_join(folder.path(), "run");
  EXPECT_EQ(read_file(path_join(run, "metrics.jsonl")),
            "{\"config\":{\"lr\":0.5}}\n{\"step\":7,\"loss\":2.5,\"note\":\"a text\"}\n{\"step\":2,\"loss\":1}\n");
  std::string events;
  for (const std::string& name : list_folder(run))
    if (name.starts_with("events.out.tfevents.")) events = read_file(path_join(run, name));
  for (const char* part : {"loss", "note", "a text", "lr"}) EXPECT_NE(events.find(part), std::string::npos) << part;
}

}  // namespace
