// tessera::Accelerator: the user's own loop on real processes.
#include <tests/faces/loop.h>

#include <tessera/base/file.h>
#include <tessera/config/core/run_config.h>
#include <tessera/faces/accelerator.h>
#include <tessera/format/safetensors/safetensors_index.h>
#include <tessera/kernels/cpu/dispatch.h>

#include <torch/nn/modules/dropout.h>
#include <torch/optim/adamw.h>
#include <torch/optim/schedulers/step_lr.h>

#include <set>

namespace {

using namespace tessera;
using namespace tessera::testing;

/// Row k of the data is x = randn, y = randn, both depending only on k, not on the number of rows; the third tensor is
/// k.
RowSource rows_of(std::int64_t rows) {
  at::Generator generator = at::detail::getDefaultCPUGenerator().clone();
  generator.set_current_seed(11);
  return tensor_rows(
      {at::randn({rows, 12}, generator, at::kFloat), at::randn({rows, 5}, generator, at::kFloat), at::arange(rows)});
}

class AcceleratorRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(All, AcceleratorRanks, ::testing::Values(1, 2, 4));

TEST_P(AcceleratorRanks, a_step_ends_every_so_many_micro_batches_and_with_the_loader) {
  run_ranks(GetParam(), [](comm::World& world) {
    for (const bool to_the_end : {true, false}) {
      Accelerator accelerator({.gradient_accumulation_steps = 2, .sync_with_dataloader = to_the_end});
      auto [model, optimizer, loader] = accelerator.prepare(
          make_net(), OptimizerSettings{.lr = 0.01}, DataLoader(rows_of(5 * 4 * world.size()), {.batch_size = 4}));
      ASSERT_EQ(loader.size(), 5);
      std::vector<bool> syncs, changed;
      for (int pass = 0; pass < 2; ++pass)
        for (const auto& batch : loader) {
          const Weights before = weights_of(accelerator.training().sharded());
          const auto scope = accelerator.accumulate(model);
          accelerator.backward((model(batch[0]) - batch[1]).square().mean());
          if (accelerator.sync_gradients()) {
            EXPECT_GT(accelerator.clip_grad_norm_(1.0), 0);
          }
          optimizer.step();
          optimizer.zero_grad();
          syncs.push_back(accelerator.sync_gradients());
          changed.push_back(
              !at::equal(before.begin()->second, weights_of(accelerator.training().sharded()).begin()->second));
        }
      // the fifth batch ends the pass, and counting starts over
      const std::vector<bool> with = {false, true, false, true, true, false, true, false, true, true},
                              without = {false, true, false, true, false, true, false, true, false, true};
      EXPECT_EQ(syncs, to_the_end ? with : without);
      EXPECT_EQ(changed, syncs);
    }
  });
}

TEST_P(AcceleratorRanks, even_batches_give_every_rank_as_many_and_metrics_count_every_row_once) {
  run_ranks(GetParam(), [](comm::World& world) {
    for (const std::int64_t rows : {1, 3, 16, 17, 31})
      for (const bool even : {true, false}) {
        Accelerator accelerator({.even_batches = even});
        DataLoader loader = accelerator.prepare(DataLoader(rows_of(rows), {.batch_size = 4, .shuffle = true}));
        const at::Tensor counts = accelerator.gather(at::full({1}, loader.size()));
        if (even) {
          EXPECT_TRUE(at::all(counts == counts[0]).item<bool>());
        }
        if (!even && counts.max().item<std::int64_t>() != counts.min().item<std::int64_t>())
          continue;  // gather() would need equal counts
        std::vector<std::int64_t> seen;
        for (const auto& batch : loader) {
          const at::Tensor all = accelerator.gather_for_metrics(batch[2]);
          for (std::int64_t i = 0; i < all.size(0); ++i) seen.push_back(all[i].item<std::int64_t>());
        }
        EXPECT_EQ(static_cast<std::int64_t>(seen.size()), rows) << world.size() << " ranks, even " << even;
        EXPECT_EQ(static_cast<std::int64_t>(std::set(seen.begin(), seen.end()).size()), rows);
      }
  });
}

TEST(Accelerator, split_batches_cuts_one_batch_among_the_ranks) {
  run_ranks(2, [](comm::World& world) {
    Accelerator accelerator({.split_batches = true});
    DataLoader loader = accelerator.prepare(DataLoader(rows_of(10), {.batch_size = 4}));
    EXPECT_EQ(loader.size(), 3);
    auto first = loader.begin();
    EXPECT_EQ((*first)[2][0].item<std::int64_t>(), 2 * world.rank());
    EXPECT_EQ((*first)[2].size(0), 2);
    EXPECT_THROW(accelerator.prepare(DataLoader(rows_of(10), {.batch_size = 3})), InputError);
  });
}

TEST(Accelerator, first_batches_are_skipped_without_reading_them) {
  run_ranks(2, [](comm::World&) {
    Accelerator accelerator;
    int read = 0;
    const RowSource source{16, [&](const std::vector<std::int64_t>& rows) {
                             ++read;
                             return std::vector<at::Tensor>{at::tensor(rows)};
                           }};
    DataLoader loader = accelerator.prepare(DataLoader(source, {.batch_size = 2, .shuffle = true}));
    std::vector<at::Tensor> all;
    for (const auto& batch : loader) all.push_back(batch[0]);
    ASSERT_EQ(all.size(), 4u);
    read = 0;
    loader.set_epoch(0);
    DataLoader rest = Accelerator::skip_first_batches(loader, 3);
    EXPECT_EQ(rest.size(), 1);
    for (const auto& batch : rest) EXPECT_TRUE(at::equal(batch[0], all[3]));
    EXPECT_EQ(read, 1);
    EXPECT_EQ(rest.size(), 4) << "later passes are complete";
  });
}

TEST_P(AcceleratorRanks, items_are_split_as_evenly_as_can_be) {
  run_ranks(GetParam(), [](comm::World& world) {
    Accelerator accelerator;
    const std::vector<std::string> items = {"a", "b", "c", "d", "e"};
    const auto mine = accelerator.split_between_processes(items);
    const std::vector<std::vector<std::string>> of4 = {{"a", "b"}, {"c"}, {"d"}, {"e"}},
                                                of2 = {{"a", "b", "c"}, {"d", "e"}};
    if (world.size() == 4) {
      EXPECT_EQ(mine, of4[static_cast<std::size_t>(world.rank())]);
    }
    if (world.size() == 2) {
      EXPECT_EQ(mine, of2[static_cast<std::size_t>(world.rank())]);
    }
    if (world.size() == 1) {
      EXPECT_EQ(mine, items);
    }
    const auto padded = accelerator.split_between_processes(items, /*apply_padding=*/true);
    EXPECT_EQ(padded.size(),
              (items.size() + static_cast<std::size_t>(world.size()) - 1) / static_cast<std::size_t>(world.size()));
  });
}

TEST(Accelerator, the_main_process_goes_first_and_triggers_reach_everyone) {
  const TemporaryFolder folder;
  const std::string file = path_join(folder.path(), "made");
  run_ranks(4, [&](comm::World& world) {
    Accelerator accelerator;
    {
      const auto scope = accelerator.main_process_first();
      if (accelerator.is_main_process()) {
        EXPECT_FALSE(path_exists(file));
        write_file_atomically(file, "x");
      } else {
        EXPECT_TRUE(path_exists(file));
      }
    }
    int ran = 0;
    accelerator.on_main_process([&] { ran += 1; });
    accelerator.on_last_process([&] { ran += 10; });
    EXPECT_EQ(ran, world.rank() == 0 ? 1 : world.rank() == 3 ? 10 : 0);
    EXPECT_FALSE(accelerator.check_trigger());
    if (world.rank() == 2) accelerator.set_trigger();
    EXPECT_TRUE(accelerator.check_trigger());
    EXPECT_FALSE(accelerator.check_trigger());
    EXPECT_EQ(accelerator.reduce(at::full({2}, 1.5)).sum().item<float>(), 12);
    EXPECT_EQ(accelerator.gather(at::full({world.rank()}, 1)).size(0), 6) << "numbers of rows may differ";
  });
}

/// Rows of rank `rank` in round `round` when `rows` are dealt in batches of `size`; empty: none for this rank.
std::vector<at::Tensor> dealt(std::int64_t rows, std::int64_t size, std::int64_t ranks, std::int64_t round,
                              std::int64_t rank) {
  const std::int64_t begin = (round * ranks + rank) * size, end = std::min(begin + size, rows);
  std::vector<std::int64_t> wanted;
  for (std::int64_t row = begin; row < end; ++row) wanted.push_back(row);
  return wanted.empty() ? std::vector<at::Tensor>() : rows_of(rows).read(wanted);
}

TEST(Accelerator, uneven_inputs_are_joined_as_torch_joins_them) {
  constexpr std::int64_t rows = 21, size = 4;  // 4 ranks take 4 4 4 4 | 4 1 - -; 2 ranks take 4 4 | 4 4 | 4 1
  for (const int ranks : {2, 3, 4}) {
    const auto net = make_net();
    std::vector<optim::Slot> slots;
    for (const auto& p : net->named_parameters()) slots.push_back({.name = p.key(), .parameter = p.value()});
    const auto adamw = optim::make_adamw(slots, {});
    const std::int64_t rounds = (rows + size * ranks - 1) / (size * ranks);
    for (int pass = 0; pass < 2; ++pass)
      for (std::int64_t round = 0; round < rounds; ++round) {
        net->zero_grad();
        for (int rank = 0; rank < ranks; ++rank)
          if (const auto batch = dealt(rows, size, ranks, round, rank); !batch.empty())
            ((net->forward(batch[0]) - batch[1]).square().mean() / ranks).backward();
        adamw->step(0.01, 1);
      }
    Weights want;
    for (const auto& p : net->named_parameters()) want[p.key()] = p.value().detach().clone();
    run_ranks(ranks, [&](comm::World& world) {
      for (const char* strategy : {"ddp", "zero2", "full_shard"}) {
        Accelerator accelerator({.arguments = {concat("--strategy=", strategy)}});
        auto [model, optimizer, loader] = accelerator.prepare(make_net(), OptimizerSettings{.lr = 0.01},
                                                              DataLoader(rows_of(rows), {.batch_size = size}));
        std::int64_t joined = 0;
        for (int pass = 0; pass < 2; ++pass) {
          const auto scope = accelerator.join_uneven_inputs(model, /*even_batches=*/false);
          EXPECT_EQ(loader.size(), rounds);
          std::set<std::int64_t> seen;
          std::int64_t losses = 0;
          for (const auto& batch : loader) {
            const auto step = accelerator.accumulate(model);
            const at::Tensor loss = (model(batch[0]) - batch[1]).square().mean();
            accelerator.backward(loss);
            optimizer.step();
            optimizer.zero_grad();
            joined += accelerator.has_joined();
            losses += accelerator.gather_for_metrics(loss).size(0);
            const at::Tensor numbers = accelerator.gather_for_metrics(batch[2]);
            for (std::int64_t i = 0; i < numbers.size(0); ++i)
              EXPECT_TRUE(seen.insert(numbers[i].item<std::int64_t>()).second) << "each row once";
          }
          EXPECT_EQ(static_cast<std::int64_t>(seen.size()), rows);
          EXPECT_EQ(losses, (rows + size - 1) / size) << "the batches that exist";
        }
        const std::int64_t mine = (rows + size - 1) / size / ranks + (world.rank() < (rows + size - 1) / size % ranks);
        EXPECT_EQ(joined, 2 * (rounds - mine));
        expect_close(weights_of(accelerator.training().sharded()), want, 2e-5, concat(strategy, ", ", ranks, " ranks"));
        EXPECT_EQ(loader.size(), rounds) << "even again";
        for (const auto& batch : loader) EXPECT_EQ(batch[0].size(0), size);
      }
    });
  }
}

TEST(Accelerator, uneven_batches_in_training_are_an_error_and_no_hang) {
  for (const char* strategy : {"ddp", "full_shard"})
    for (const std::int64_t accumulation : {1, 2}) {
      const auto outcomes = run_ranks_outcomes(2, [&](comm::World& world) {
        Accelerator accelerator({.gradient_accumulation_steps = accumulation,
                                 .even_batches = false,
                                 .arguments = {concat("--strategy=", strategy)}});
        const std::int64_t rows = (2 * 2 + 1) * 4;  // 3 batches on rank 0, 2 on rank 1
        auto [model, optimizer, loader] = accelerator.prepare(make_net(), OptimizerSettings{.lr = 0.01},
                                                              DataLoader(rows_of(rows), {.batch_size = 4}));
        for (int pass = 0; pass < 2; ++pass)
          for (const auto& batch : loader) {
            const auto scope = accelerator.accumulate(model);
            accelerator.backward((model(batch[0]) - batch[1]).square().mean());
            optimizer.step();
            optimizer.zero_grad();
          }
      });
      EXPECT_NE(outcomes[0].error.find("this is batch 3 of rank 0, but other ranks have only 2"), std::string::npos)
          << outcomes[0].error;
      for (const char* remedy : {"join_uneven_inputs()", "even_batches true", "loss is multiplied by zero"})
        EXPECT_NE(outcomes[0].error.find(remedy), std::string::npos) << outcomes[0].error;
      EXPECT_FALSE(outcomes[1].ok);
    }
}

TEST(Accelerator, ranks_with_fewer_batches_may_end_in_the_same_step) {
  run_ranks(2, [&](comm::World& world) {
    Accelerator accelerator({.gradient_accumulation_steps = 2, .even_batches = false});
    auto [model, optimizer, loader] =
        accelerator.prepare(make_net(), OptimizerSettings{.lr = 0.01}, DataLoader(rows_of(4 * 7), {.batch_size = 4}));
    EXPECT_EQ(loader.size(), world.rank() == 0 ? 4 : 3);
    int steps = 0;
    for (const auto& batch : loader) {
      const auto scope = accelerator.accumulate(model);
      accelerator.backward((model(batch[0]) - batch[1]).square().mean());
      steps += accelerator.sync_gradients();
      optimizer.step();
      optimizer.zero_grad();
    }
    EXPECT_EQ(steps, 2);
    accelerator.training().sharded().check_replicas();
  });
}

struct DropoutNet : Model {
  torch::nn::Linear in{12, 32}, out{32, 5};
  torch::nn::Dropout dropout{0.3};
  DropoutNet() {
    register_module("in", in);
    register_module("dropout", dropout);
    register_module("out", out);
  }
  at::Tensor forward(at::Tensor x) override { return out(dropout(in(x))); }
};

struct Counter : Stateful {
  std::int64_t count = 0;
  Value state() const override { return Value::of(count); }
  void load_state(const Value& state) override { count = state.as_int(); }
};

/// One run of a program: `passes` over the data, saving after the first.
struct Life {
  Weights weights;
  double rate = 0;
  std::int64_t count = 0;
};
Life live(const std::vector<std::string>& arguments, const std::string& folder, int passes, bool resume,
          std::uint64_t seed) {
  Accelerator accelerator(
      {.gradient_accumulation_steps = 2, .project_dir = folder, .total_limit = 2, .arguments = arguments});
  at::manual_seed(7);
  const auto net = std::make_shared<DropoutNet>();
  torch::optim::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(2e-3));
  torch::optim::StepLR halve(adamw, 2, 0.5);
  auto [model, optimizer, loader, scheduler] =
      accelerator.prepare(net, adamw, DataLoader(rows_of(50), {.batch_size = 4, .shuffle = true}), halve);
  Counter counter;
  accelerator.register_for_checkpointing(counter);
  at::manual_seed(seed + static_cast<std::uint64_t>(accelerator.process_index()));
  if (resume) accelerator.load_state();
  for (int pass = resume ? 1 : 0; pass < passes; ++pass) {
    for (const auto& batch : loader) {
      const auto scope = accelerator.accumulate();
      accelerator.backward((model(batch[0]) - batch[1]).square().mean());
      accelerator.clip_grad_norm_(1.0);
      optimizer.step();
      scheduler.step();
      optimizer.zero_grad();
    }
    ++counter.count;
    if (pass == 0) accelerator.save_state();
  }
  return {weights_of(accelerator.training().sharded()), optimizer.learning_rates().at(0), counter.count};
}

TEST_P(AcceleratorRanks, tensors_of_all_ranks_are_padded_sent_and_gathered) {
  run_ranks(GetParam(), [](comm::World& world) {
    const Accelerator accelerator;
    const std::int64_t ranks = world.size(), rank = world.rank();
    const at::Tensor own = at::full({rank + 1, 2}, rank + 1, at::kFloat);
    for (const bool first : {false, true}) {
      const at::Tensor padded = accelerator.pad_across_processes(own, 0, -1, first);
      EXPECT_TRUE(at::equal(accelerator.pad_across_processes(own, -2, -1, first), padded)) << "from the last";
      ASSERT_EQ(padded.sizes(), (std::vector<std::int64_t>{ranks, 2}));
      EXPECT_TRUE(at::equal(padded.narrow(0, first ? ranks - rank - 1 : 0, rank + 1), own));
      EXPECT_EQ((padded == -1).sum().item<std::int64_t>(), 2 * (ranks - rank - 1));
    }
    EXPECT_TRUE(at::equal(accelerator.pad_across_processes(own, 2), own));
    EXPECT_TRUE(at::equal(accelerator.pad_across_processes(own, -3), own));
    const int last = world.size() - 1;
    EXPECT_EQ(accelerator.broadcast(at::full({3}, rank), last).sum().item<std::int64_t>(), 3 * last);
    const auto gathered = accelerator.gather_for_metrics(std::vector{own, at::full({1}, rank)});
    EXPECT_EQ(gathered.at(0).size(0), ranks * (ranks + 1) / 2);
    EXPECT_TRUE(at::equal(gathered.at(1), at::arange(ranks)));
    int called = 0;
    accelerator.on_local_main_process([&] { ++called; });
    EXPECT_EQ(called, world.local_rank() == 0 ? 1 : 0);
  });
}

TEST(Accelerator, its_precision_is_at_hand_outside_of_models) {
  run_ranks(1, [](comm::World&) {
    const at::Tensor x = at::ones({4, 4});
    const Accelerator accelerator({.mixed_precision = "bf16"}), full;
    {
      const auto precision = accelerator.autocast();
      EXPECT_EQ(at::matmul(x, x).scalar_type(), kernels::has_bf16_instructions() ? at::kBFloat16 : at::kFloat);
    }
    const auto precision = full.autocast();
    EXPECT_EQ(at::matmul(x, x).scalar_type(), at::kFloat);
  });
}

TEST(Accelerator, continues_with_the_same_bits) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{}, {"--fsdp", "full_shard auto_wrap"}, {"--zero_stage", "1", "--bf16"}}) {
    const TemporaryFolder folder;
    run_ranks(2, [&](comm::World&) {
      const Life whole = live(arguments, folder.path(), 3, false, 100),
                 rest = live(arguments, folder.path(), 3, true, 200);
      expect_same_bits(rest.weights, whole.weights, arguments.empty() ? "ddp" : arguments[1]);
      EXPECT_EQ(rest.rate, whole.rate);
      EXPECT_EQ(rest.count, whole.count);
    });
  }
}

TEST(Accelerator, checkpoints_are_numbered_limited_and_refuse_other_objects) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World&) {
    Accelerator accelerator({.project_dir = folder.path(), .total_limit = 2});
    auto [model, optimizer] = accelerator.prepare(make_net(), OptimizerSettings{.name = "lamb"});
    for (int i = 0; i < 4; ++i) accelerator.save_state();
    accelerator.wait_for_everyone();
    EXPECT_EQ(list_folder(path_join(folder.path(), "checkpoints")),
              (std::vector<std::string>{"checkpoint_2", "checkpoint_3"}));
    Counter counter;
    accelerator.register_for_checkpointing(counter);
    std::string said = "nothing";
    try {
      accelerator.load_state();
    } catch (const InputError& error) {
      said = error.what();
    } catch (const Error& error) {
      said = "";  // rank 0 reports it
    }
    if (accelerator.is_main_process()) {
      EXPECT_NE(said.find("saved with 0 objects"), std::string::npos) << said;
    } else {
      EXPECT_EQ(said, "");
    }
    EXPECT_THROW(Accelerator().save_state(), InputError) << "nothing prepared";
  });
}

TEST(Accelerator, saved_models_are_whole_in_files_of_a_size_and_stale_ones_go) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    Accelerator accelerator({.arguments = {"--fsdp", "full_shard auto_wrap"}});
    auto [model, optimizer] = accelerator.prepare(make_net(), OptimizerSettings{});
    const Weights want = weights_of(accelerator.training().sharded());
    const auto check = [&](std::size_t files, std::size_t most) {
      if (world.rank() != 0) return;
      const format::SafetensorsFolder saved(folder.path());
      EXPECT_EQ(saved.files().size(), files);
      std::map<std::size_t, std::pair<std::size_t, int>> held;  // bytes and tensors per file
      for (const auto& tensor : saved.tensors()) {
        auto& [bytes, count] = held[tensor.file];
        bytes += saved.bytes(tensor).size();
        ++count;
      }
      for (const auto& [file, what] : held)
        EXPECT_TRUE(what.first <= most || what.second == 1) << file << ": " << what.first;
      EXPECT_EQ(saved.tensors().size(), want.size());
      for (const auto& [name, value] : want) {
        ASSERT_NE(saved.find(name), nullptr) << name;
        const auto bytes = saved.bytes(*saved.find(name));
        const at::Tensor contiguous = value.contiguous();
        EXPECT_EQ(std::memcmp(bytes.data(), contiguous.const_data_ptr(), bytes.size()), 0) << name;
      }
    };
    accelerator.save_model(folder.path(), 1000);  // by name; a file ends before a tensor that would exceed the size
    check(3, 1000);
    accelerator.save_model(folder.path());
    check(1, SIZE_MAX);
    EXPECT_EQ(&Accelerator::unwrap_model(model), model.module().get());
  });
}

TEST(Accelerator, obeys_what_accelerate_launch_puts_into_the_environment) {
  RankOptions ranks;
  ranks.before_init = [](launch::RankEnvironment&, InitOptions&) {
    for (const auto& [name, value] :
         {std::pair("ACCELERATE_MIXED_PRECISION", "bf16"), std::pair("ACCELERATE_USE_FSDP", "true"),
          std::pair("FSDP_VERSION", "1"), std::pair("FSDP_SHARDING_STRATEGY", "FULL_SHARD"),
          std::pair("FSDP_STATE_DICT_TYPE", "FULL_STATE_DICT"),
          std::pair("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "3")})
      setenv(name, value, 1);
  };
  run_ranks(
      2,
      [](comm::World&) {
        Accelerator accelerator;
        EXPECT_EQ(accelerator.mixed_precision(), "bf16");
        EXPECT_EQ(accelerator.config().sharding.strategy, Strategy::full_shard);
        EXPECT_EQ(accelerator.config().output.save_state_dict_type, StateDictType::full);
        EXPECT_EQ(accelerator.gradient_accumulation_steps(), 3);
        EXPECT_EQ(Accelerator({.mixed_precision = "no"}).mixed_precision(), "no")
            << "the program's setting takes precedence";
        EXPECT_EQ(Accelerator({.mixed_precision = "fp16"}).mixed_precision(), "fp16");
      },
      ranks);
}

TEST(Accelerator, fp16_steps_that_overflow_are_skipped) {
  run_ranks(2, [](comm::World& world) {
    Accelerator accelerator({.mixed_precision = "fp16"});
    EXPECT_EQ(accelerator.mixed_precision(), "fp16");
    auto [model, optimizer, scheduler] = accelerator.prepare(
        make_net(), OptimizerSettings{.lr = 0.01},
        optim::Schedule{.type = ScheduleType::linear, .warmup_steps = 0, .total_steps = 10, .learning_rate = 0.01});
    for (int step = 0; step < 3; ++step) {
      const Weights before = weights_of(accelerator.training().sharded());
      const double rate = optimizer.learning_rates().at(0);
      const Batch batch = micro_batch(step, world.rank(), 2);
      const auto scope = accelerator.accumulate();
      const at::Tensor output = model(batch.x);
      EXPECT_EQ(output.scalar_type(), at::kFloat);
      const at::Tensor loss = (output - batch.y).square().mean();
      accelerator.backward(step == 1 && world.rank() == 0 ? loss * 1e37 : loss);
      const double norm = accelerator.clip_grad_norm_(1.0);
      EXPECT_EQ(std::isfinite(norm), step != 1);
      optimizer.step();
      scheduler.step();
      optimizer.zero_grad();
      EXPECT_EQ(optimizer.step_was_skipped(), step == 1);
      EXPECT_EQ(accelerator.optimizer_step_was_skipped(), step == 1);
      EXPECT_EQ(at::equal(before.begin()->second, weights_of(accelerator.training().sharded()).begin()->second),
                step == 1);
      EXPECT_EQ(optimizer.learning_rates().at(0) == rate, step == 1);
    }
    EXPECT_THROW(Accelerator({.mixed_precision = "fp8"}), InputError);
    Accelerator eight({.arguments = {"--bf16", "--fp8_format", "hybrid"}});
    EXPECT_THROW(eight.prepare(make_net(), OptimizerSettings{.lr = 0.01}), InputError);
  });
}

}  // namespace
