// Checkpoints that all ranks write (train/saving/saver.h): their contents under every strategy, and what happens when a
// rank cannot write.
#include <tests/sharding/job.h>

#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/checkpoint/folder.h>
#include <tessera/checkpoint/read_into.h>
#include <tessera/checkpoint/stored_state.h>
#include <tessera/checkpoint/tensor_bridge.h>
#include <tessera/format/manifest/verify.h>
#include <tessera/train/saving/saver.h>

#include <algorithm>
#include <limits>

namespace {

using namespace tessera;
using namespace tessera::testing;
using tessera::train::SaveContents;
using tessera::train::SaveOutcome;
using tessera::train::Saver;

/// A module after two steps with its optimizer, and its tensors as gathered.
struct Job {
  Trained net;
  Sharded sharded;
  std::unique_ptr<optim::Optimizer> optimizer;

  Job(const Task& task, ShardingOptions options, Rule rule = Rule::adamw)
      : net(task.make(at::kFloat)),
        sharded(*net.module, std::move(options)),
        optimizer(make_rule(rule, sharded.slots(set_decay))) {
    for (int step = 0; step < 2; ++step) train(step);
  }
  void train(int step) {
    sharded.zero_grad();
    net.loss(step, sharded.options().group.rank(), sharded.options().group.size()).backward();
    optimizer->step(0.05);
  }
  std::map<std::string, at::Tensor> weights() {
    std::map<std::string, at::Tensor> all;
    for (const ShardedParameter& p : sharded.named_parameters())
      all[p.name] = sharded.gather_like(p, p.local.detach()).clone();
    return all;
  }
  std::map<std::string, at::Tensor> states() {
    std::map<std::string, at::Tensor> all;
    for (const auto& [name, held] : optimizer->state())
      all[name] = sharded.gather_like(train::parameter_of_state(sharded, name), held).clone();
    return all;
  }
};

ShardingOptions options_of(comm::World& world, const Task& task, const Form& form) {
  return fitted({.strategy = form.strategy,
                 .group = world.group(),
                 .shard_group_size = form.group(world.size()),
                 .wrap = by_class(task.units)});
}

SaveContents contents(std::int64_t step) {
  return {.step = step, .small_files = [](const std::string& folder) {
            write_file_atomically(path_join(folder, "config.json"), "{}");
            return std::vector<format::ManifestFile>{
                {"config.json", format::digest_of_file(path_join(folder, "config.json"))}};
          }};
}

void expect_holds(const std::string& folder, const std::map<std::string, at::Tensor>& weights,
                  const std::map<std::string, at::Tensor>& states) {
  const format::Verdict verdict = format::verify_folder(folder);
  EXPECT_TRUE(verdict.whole()) << verdict.text();
  const format::SafetensorsFolder files = checkpoint::open_hf_weights(folder);
  EXPECT_EQ(files.tensors().size(), weights.size());
  for (const auto& stored : files.tensors()) {
    const at::Tensor found = checkpoint::read_tensor(files.files()[stored.file], stored.info);
    ASSERT_TRUE(weights.count(stored.info.name)) << stored.info.name;
    EXPECT_TRUE(at::equal(found, weights.at(stored.info.name))) << stored.info.name;
  }
  const checkpoint::StoredState stored(folder);
  EXPECT_EQ(stored.tensors().size(), states.size());
  for (const auto& [name, expected] : states) {
    const format::StoredTensor* tensor = stored.find(name);
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(at::IntArrayRef(tensor->shape), expected.sizes()) << name;
    const at::Tensor found = at::empty_like(expected);
    stored.read(name, 0, found);
    EXPECT_TRUE(at::equal(found, expected)) << name;
  }
}

const Task& task_named(const std::string& name) {
  return *std::find_if(tasks().begin(), tasks().end(), [&](const Task& task) { return task.name == name; });
}

TEST(Saver, holds_what_the_ranks_held_under_every_strategy) {
  for (const int ranks : {1, 2, 4}) {
    const TemporaryFolder out;
    run_ranks(ranks, [&](comm::World& world) {
      for (const Form& form : forms())
        for (const bool in_memory : {true, false}) {
          SCOPED_TRACE(concat(form.name, " on ", ranks, in_memory ? ", from memory" : ", directly"));
          const std::string folder = path_join(out.path(), concat(form.name, in_memory));
          Job job(task_named("gpt2"), options_of(world, task_named("gpt2"), form));
          const auto weights = job.weights(), states = job.states();
          Saver saver(world.group(), {.output_dir = folder, .in_memory = in_memory});
          saver.save(job.sharded, *job.optimizer, contents(3));
          for (int step = 2; step < 4; ++step) job.train(step);  // the tensors change while the save is writing them
          const auto outcome = saver.finish();
          ASSERT_TRUE(outcome.has_value());
          EXPECT_EQ(outcome->error, "");
          EXPECT_EQ(outcome->folder, path_join(folder, "checkpoint-3"));
          EXPECT_EQ(list_folder(folder), std::vector<std::string>{"checkpoint-3"});
          expect_holds(outcome->folder, weights, states);
          // parts are equal: no rank writes far more than the others (a tensor is not divided among files)
          std::int64_t largest = 0;
          for (const auto& [name, w] : weights) largest = std::max(largest, static_cast<std::int64_t>(w.nbytes()));
          EXPECT_LE(outcome->own_bytes, outcome->bytes / ranks + 4 * largest + 8192);
          world.group().barrier().wait();
        }
    });
  }
}

TEST(Saver, one_rank_writes_the_plain_names_and_no_index) {
  const TemporaryFolder out;
  run_ranks(1, [&](comm::World& world) {
    Job job(task_named("gpt"), options_of(world, task_named("gpt"), forms()[0]));
    Saver saver(world.group(), {.output_dir = out.path()});
    saver.save(job.sharded, *job.optimizer, contents(1));
    EXPECT_EQ(saver.finish()->error, "");
  });
  EXPECT_EQ(list_folder(path_join(out.path(), "checkpoint-1")),
            (std::vector<std::string>{"config.json", "manifest.json", "model.safetensors", "optimizer.safetensors"}));
}

TEST(Saver, an_optimizer_without_states_and_a_model_alone) {
  for (const int ranks : {1, 2}) {
    const TemporaryFolder out;
    run_ranks(ranks, [&](comm::World& world) {
      const Trained net = task_named("mlp").make(at::kFloat);
      Sharded sharded(*net.module, options_of(world, task_named("mlp"), forms()[4]));
      const auto sgd = optim::make_sgd(sharded.slots(), {.momentum = 0});
      Saver saver(world.group(), {.output_dir = out.path()});
      saver.save(sharded, *sgd, contents(1));
      ASSERT_EQ(saver.finish()->error, "");
      SaveContents model = contents(2);
      model.form.optimizer = false;
      saver.save(sharded, *sgd, std::move(model));
      ASSERT_EQ(saver.finish()->error, "");
    });
    EXPECT_TRUE(checkpoint::StoredState(path_join(out.path(), "checkpoint-1")).tensors().empty());
    for (const std::string& name : list_folder(path_join(out.path(), "checkpoint-2")))
      EXPECT_FALSE(name.starts_with("optimizer")) << name;
  }
}

TEST(Saver, what_one_rank_cannot_write_is_dropped_everywhere_and_the_next_save_works) {
  for (const int broken : {0, 1}) {
    const TemporaryFolder out;
    run_ranks(2, [&](comm::World& world) {
      Job job(task_named("gpt2"), options_of(world, task_named("gpt2"), forms()[4]));
      Saver saver(world.group(), {.output_dir = out.path()});
      saver.save(job.sharded, *job.optimizer, contents(1));
      ASSERT_EQ(saver.finish()->error, "");
      const auto state = job.optimizer->state();
      const auto held =
          std::find_if(state.begin(), state.end(), [](const auto& one) { return one.second.numel() > 0; });
      const at::Tensor first = held->second.view({-1}).narrow(0, 0, 1);
      const at::Tensor value = first.clone();
      if (world.rank() == broken) first.fill_(std::numeric_limits<float>::infinity());
      saver.save(job.sharded, *job.optimizer, contents(2));
      const auto failed = saver.finish();
      ASSERT_TRUE(failed.has_value());
      EXPECT_NE(failed->error.find(concat("rank ", broken, ": ", held->first, " contains values that are not finite")),
                std::string::npos)
          << failed->error;
      EXPECT_FALSE(saver.busy());
      world.group().barrier().wait();
      EXPECT_EQ(list_folder(out.path()), std::vector<std::string>{"checkpoint-1"})
          << "no part of it remains, and the old one stays";
      world.group().barrier().wait();
      first.copy_(value);
      const auto weights = job.weights(), states = job.states();
      saver.save(job.sharded, *job.optimizer, contents(3));
      ASSERT_EQ(saver.finish()->error, "");
      expect_holds(path_join(out.path(), "checkpoint-3"), weights, states);
    });
  }
}

TEST(Saver, small_files_that_fail_drop_it_and_what_prune_throws_does_not) {
  const TemporaryFolder out;
  run_ranks(2, [&](comm::World& world) {
    Job job(task_named("mlp"), options_of(world, task_named("mlp"), forms()[0]));
    Saver saver(world.group(), {.output_dir = out.path()});
    SaveContents broken = contents(1);
    broken.small_files = [](const std::string&) -> std::vector<format::ManifestFile> { throw Error("no space left"); };
    saver.save(job.sharded, *job.optimizer, std::move(broken));
    EXPECT_EQ(saver.finish()->error, "rank 0: no space left");
    SaveContents careless = contents(2);
    careless.prune = [] { throw Error("cannot remove"); };
    saver.save(job.sharded, *job.optimizer, std::move(careless));
    EXPECT_EQ(saver.finish()->error, "");
    world.group().barrier().wait();
    EXPECT_EQ(list_folder(out.path()), std::vector<std::string>{"checkpoint-2"});
  });
}

TEST(Saver, ends_when_all_have_ended) {
  const TemporaryFolder out;
  run_ranks(2, [&](comm::World& world) {
    Job job(task_named("mlp"), options_of(world, task_named("mlp"), forms()[0]));
    Saver saver(world.group(), {.output_dir = out.path()});
    EXPECT_FALSE(saver.busy());
    EXPECT_FALSE(saver.finish().has_value());
    saver.save(job.sharded, *job.optimizer, contents(1));
    EXPECT_TRUE(saver.busy());
    int phases = 0;
    std::optional<SaveOutcome> outcome;
    while (saver.busy()) {
      at::Tensor ended = at::full({1}, std::int64_t{saver.ended()}, at::kLong);
      world.group().all_reduce(ended).wait();
      if (ended.item<std::int64_t>() < world.size()) continue;
      ++phases;
      outcome = saver.advance();
      EXPECT_EQ(outcome.has_value(), !saver.busy());
    }
    EXPECT_EQ(phases, 2);
    EXPECT_EQ(outcome->error, "");
    EXPECT_TRUE(path_exists(path_join(out.path(), "checkpoint-1/manifest.json")));
  });
}

}  // namespace
