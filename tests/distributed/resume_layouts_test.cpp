// A checkpoint of any number of ranks and any strategy can be loaded by any other: every byte of weights and optimizer
// states arrives, and in fixed order the run continues with the bits of one that was never stopped.

#include "resume_jobs.h"

#include <algorithm>
#include <map>

#include <tessera/checkpoint/checkpoint.h>
#include <tessera/format/safetensors/safetensors.h>
#include <tessera/train/core/optimization.h>
#include <tessera/train/core/update.h>
#include <tessera/train/loop/setup.h>
#include <tessera/train/loop/sharding.h>
#include <tessera/train/saving/save_plan.h>

namespace tessera::testing {
namespace {

const Words fixed_order = {"--deterministic_reduce", "--logical_shards", "12"};
constexpr int saved_at = 2, last_step = 4;

/// Loads as a resumed run does, and writes the complete state of all ranks into two files.
void load_and_gather(comm::World& world, const RunConfig& config, const std::string& weights_file,
                     const std::string& states_file) {
  const train::Start start = train::choose_start(config, world);
  train::Setup setup = train::prepare(config, world, train::make_run_groups(config, world), start);
  ShardingOptions options = train::sharding_options(setup.config, *setup.model, world.group());
  if (setup.weights)
    options.load = [&](const std::string& name, at::IntArrayRef, std::int64_t begin, at::Tensor piece) {
      return setup.weights->read(name, begin, piece);
    };
  const Sharded sharded(*setup.model, std::move(options));
  const auto optimizer =
      train::configured_update(setup.config.optimization, train::decay_everything(0))(*setup.model, sharded);
  optimizer->restore(sharded, setup.resume->models[0].optimizer_steps, setup.resume_folder, nullptr, "optimizer");
  EXPECT_EQ(optimizer->steps(), saved_at);
  checkpoint::NamedTensors weights, states;
  for (const ShardedParameter& p : sharded.named_parameters())
    weights.emplace_back(p.name, sharded.gather_like(p, p.local.detach()).clone());
  for (const auto& [name, held, parameter, encoded] : optimizer->states(sharded))
    states.emplace_back(name, parameter == nullptr ? held : sharded.gather_like(*parameter, held).clone());
  if (world.rank() > 0) return;
  format::write_safetensors(weights_file, checkpoint::sources_of(weights));
  format::write_safetensors(states_file, checkpoint::sources_of(states));
}

class ResumeLayouts : public ResumeJobs {
 protected:
  /// In fixed order every layout gives the same bits, so one uninterrupted run is the reference for all.
  void run_through() {
    const RunConfig all =
        config("through", last_step, fixed_order + Words{"--save_steps", "2", "--save_state_dict_type", "full"});
    run_ranks(
        1,
        [&](comm::World&) {
          be_quiet();
          EXPECT_EQ(train::train(all, Value::make_object()), ExitCode::done);
        },
        time_limit(60));
    numbers_ = numbers("through");
    for (const int step : {saved_at, last_step})
      for (const char* file : {"model.safetensors", "optimizer.safetensors"})
        expected_[{step, file}] = read_file(path(concat("through/checkpoint-", step, "/", file)));
  }

  std::string saved(const Layout& layout) const { return path(concat("save_", layout.name, "/checkpoint-", saved_at)); }

  void save_all(const std::vector<Layout>& layouts) {
    for (const Layout& layout : layouts) {
      const RunConfig run =
          config("save_" + layout.name, last_step, fixed_order + Words{"--save_steps", "2"} + layout.flags);
      run_ranks(
          layout.ranks,
          [&](comm::World&) {
            be_quiet();
            EXPECT_EQ(train::train(run, Value::make_object()), ExitCode::done) << layout.name;
          },
          time_limit(60));
      ASSERT_TRUE(path_exists(path_join(saved(layout), "manifest.json"))) << layout.name;
      EXPECT_EQ(numbers("save_" + layout.name), numbers_) << layout.name;
    }
  }

  void load_all(const std::vector<Layout>& from, const Layout& into) {
    const auto name = [&](const Layout& layout) { return concat(layout.name, "_into_", into.name); };
    std::vector<std::pair<RunConfig, RunConfig>> runs;  // for each checkpoint: one run loads it, one continues from it
    for (const Layout& layout : from) {
      const Words resume = fixed_order + into.flags + Words{"--resume_from_checkpoint", saved(layout)};
      runs.emplace_back(config("load_" + name(layout), last_step, resume),
                        config("on_" + name(layout), last_step,
                               resume + Words{"--save_steps", "2", "--save_state_dict_type", "full"}));
    }
    run_ranks(
        into.ranks,
        [&](comm::World& world) {
          be_quiet();
          for (std::size_t i = 0; i < from.size(); ++i) {
            const std::string weights = path(concat("w", i)), states = path(concat("s", i));
            load_and_gather(world, runs[i].first, weights, states);
            if (world.rank() == 0) {
              EXPECT_TRUE(read_file(weights) == expected_.at({saved_at, "model.safetensors"}))
                  << name(from[i]) << ": other weights after loading";
              EXPECT_TRUE(read_file(states) == expected_.at({saved_at, "optimizer.safetensors"}))
                  << name(from[i]) << ": other optimizer states after loading";
            }
            EXPECT_EQ(train::train(runs[i].second, Value::make_object()), ExitCode::done) << name(from[i]);
          }
        },
        time_limit(60 + 10.0 * static_cast<double>(from.size())));
    if (HasFailure()) return;
    for (const Layout& layout : from) {
      const std::string output = "on_" + name(layout);
      EXPECT_EQ(numbers(output), numbers_.substr(numbers_.find(concat("step=", saved_at + 1))))
          << name(layout) << " goes on differently";
      for (const char* file : {"model.safetensors", "optimizer.safetensors"})
        EXPECT_TRUE(read_file(path(concat(output, "/checkpoint-", last_step, "/", file))) ==
                    expected_.at({last_step, file}))
            << name(layout) << ": other " << file;
      remove_tree(path(output));
    }
  }

  std::string numbers_;
  std::map<std::pair<int, std::string>, std::string> expected_;
};

TEST_F(ResumeLayouts, AnyLayoutLoadsAnyOther) {
  std::vector<Layout> from = all_layouts(), into = from;
  if (!whole_product()) {
    from.clear(), into.clear();
    for (const char* name : {"ddp_1", "zero1_3", "full_shard_2", "hybrid_4"}) from.push_back(layout_named(name));
    for (const char* name : {"ddp_2", "offload_1", "zero2_4", "full_shard_3"}) into.push_back(layout_named(name));
  }
  run_through();
  ASSERT_FALSE(HasFailure());
  save_all(from);
  ASSERT_FALSE(HasFailure());
  for (const Layout& layout : into) {
    load_all(from, layout);
    ASSERT_FALSE(HasFailure()) << "into " << layout.name;
  }
}

}  // namespace
}  // namespace tessera::testing
