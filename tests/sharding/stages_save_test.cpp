// Stages of a pipelined model on separate ranks (ShardingOptions::stages): they save the same data as one process,
// every division of ranks can read it, and a folder of another model is refused on all ranks.
#include <tests/sharding/saved_state.h>

#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adamw.h>

#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/checkpoint/tensor_bridge.h>
#include <tessera/comm/mesh_groups.h>
#include <tessera/config/core/run_config.h>
#include <tessera/format/manifest/verify.h>
#include <tessera/format/safetensors/safetensors_index.h>
#include <tessera/parallel/tensor_parallel.h>
#include <tessera/train/core/best_model.h>
#include <tessera/train/core/step.h>
#include <tessera/train/saving/tensor_parts.h>
#include <tests/distributed/harness.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace {

using namespace tessera;
using namespace tessera::testing;
using layout::Axis;

/// A model, or the stages of it that a rank holds; the embedding table is also the head.
struct Net : torch::nn::Module {
  Net(const std::vector<int>& own, bool first, bool last) {
    if (first || last) register_module("embed", torch::nn::Embedding(10, 6));
    const auto layers = register_module("layers", std::make_shared<torch::nn::Module>());
    for (const int i : own) layers->register_module(std::to_string(i), torch::nn::Linear(6, 6));
    if (last) register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})));
  }
};

const std::vector<int> all_layers = {0, 1, 2};
const std::string torchs = "torch::optim::AdamW";

struct Layout {
  int stages = 1, data = 1, tensor = 1;
  std::string strategy = "full_shard";
  int shards = 0;
  std::string optimizer = "adamw";
  int ranks() const { return stages * data * tensor; }
  std::string name() const { return concat(stages, "x", data, "x", tensor, " ", strategy, " ", optimizer); }
};

/// One rank of a job that has not trained.
class Rank {
 public:
  Rank(comm::World& world, const Layout& layout, const std::vector<int>& layers = all_layers, bool with_end = true)
      : world_(world) {
    const layout::Mesh mesh =
        layout::make_mesh({.sizes = {layout.stages, 1, layout.data, 1, layout.tensor}}, world.size());
    const auto over = [&](std::vector<Axis> axes) { return comm::mesh_group(world, mesh, axes); };
    ShardingOptions options{.strategy = layout.strategy,
                            .group = over({Axis::dp_replicate, Axis::dp_shard}),
                            .shard_group_size = layout.shards};
    if (row_of(options.strategy).shard_parameters) options.wrap = by_class({"Linear"});
    if (layout.stages == 1) {
      module_ = std::make_shared<Net>(layers, true, with_end);
    } else {
      options.stages = over({Axis::pp});
      const bool first = options.stages.rank() == 0;
      // two of the three layers and the table, or one layer and the head
      module_ = std::make_shared<Net>(first ? std::vector<int>{0, 1} : std::vector<int>{2}, first, !first);
      if (!first) options.held_by_earlier_stage = {"embed.weight"};
    }
    if (layout.tensor > 1 && (layout.stages == 1 || options.stages.rank() == 0))  // the last stage has no cut tensor
      parts_.emplace(*module_, TensorParallelOptions{
                                   .group = over({Axis::tp}),
                                   .plan = {{"layers.0", TensorStyle::colwise}, {"layers.1", TensorStyle::rowwise}},
                                   .check_values = false});
    core_.divide(module_, std::move(options), std::nullopt);
    if (layout.optimizer == torchs) {
      torchs_.emplace(module_->parameters());
      core_.set_update(train::torch_update(*torchs_)(*module_, core_.sharded()));
      for (const ShardedParameter& p : sharded().named_parameters())
        at::Tensor(p.local).mutable_grad() = at::zeros_like(p.local);
      core_.update().step(1);  // creates the optimizer's states
      return;
    }
    OptimizationConfig config;
    config.optim = parse_word<OptimizerKind>(layout.optimizer).value();
    core_.set_update(train::configured_update(config, train::decay_everything(0))(*module_, core_.sharded()));
  }

  Sharded& sharded() { return core_.sharded(); }
  train::StepCore& core() { return core_; }

  /// Sets every weight and state to a value derived from its name and `step`.
  void fill(std::int64_t step) {
    visit([&](const std::string&, const at::Tensor& own, const at::Tensor& wanted) { own.copy_(wanted); }, step);
  }
  void expect_holds(std::int64_t step) {
    visit([&](const std::string& name, const at::Tensor& own,
              const at::Tensor& wanted) { EXPECT_TRUE(at::equal(own, wanted)) << name; },
          step);
  }

  void save(const std::string& folder, train::SaveForm form, bool in_memory = false) {
    train::SaveContents contents{.step = 1, .form = form, .folder = folder};
    if (!in_memory) return train::save_now(world_.group(), {core_.saved_model()}, std::move(contents));
    train::Saver saver(world_.group(), {.output_dir = ""});
    saver.prepare(core_.saved_model());
    saver.save({core_.saved_model()}, std::move(contents));
    EXPECT_EQ(saver.finish()->error, "");
  }
  void load(const std::string& folder) {
    train::load_weights(*module_, core_.sharded(), folder);
    core_.update().restore(core_.sharded(), 1, folder, nullptr, "optimizer");
  }

 private:
  using Visit = std::function<void(const std::string&, const at::Tensor& own, const at::Tensor& wanted)>;
  void visit(const Visit& visit, std::int64_t step) {
    const at::NoGradGuard no_grad;
    const auto wanted = [&](const std::string& name, const ShardedParameter& p, std::int64_t count) {
      std::int64_t numel = 1;
      const std::vector<std::int64_t> shape = train::saved_shape(p);
      for (const std::int64_t n : shape) numel *= n;
      const at::Tensor part = own_tensor_part(p.local, mock_data(name, step, 0, numel).view(shape));
      return part.reshape({-1}).narrow(0, p.begin, count);
    };
    for (const ShardedParameter& p : sharded().named_parameters())
      visit(p.name, at::Tensor(p.local).view({-1}), wanted(p.name, p, p.local.numel()));
    for (const train::HeldState& state : core_.update().states(sharded())) {
      const std::int64_t count = state.held.numel();
      visit(state.name, state.held.view({-1}),
            state.parameter != nullptr ? wanted(state.name, *state.parameter, count)
                                       : mock_data(state.name, step, 0, count));
    }
  }

  comm::World& world_;
  std::shared_ptr<Net> module_;
  std::optional<TensorParallel> parts_;
  std::optional<torch::optim::AdamW> torchs_;
  train::StepCore core_;
};

std::string bytes_of(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

/// Names, types, shapes and bytes of all tensors that a reader finds.
std::map<std::string, std::string> tensors_of(const std::string& folder, bool with_states = true) {
  std::map<std::string, std::string> all;
  const format::SafetensorsFolder weights(folder);
  for (const auto& stored : weights.tensors()) {
    const at::Tensor value = checkpoint::read_tensor(weights.files()[stored.file], stored.info);
    all[stored.info.name] = concat(format::dtype_name(stored.info.dtype), " ", value.sizes(), bytes_of(value));
  }
  if (!with_states) return all;
  const checkpoint::StoredState states(folder);
  for (const format::StoredTensor& stored : states.tensors()) {
    const at::Tensor value = at::empty(stored.shape);
    states.read(stored.name, 0, value);
    all[stored.name] = concat(format::dtype_name(stored.dtype), " ", value.sizes(), bytes_of(value));
  }
  return all;
}

void expect_same(const std::string& folder, const std::string& wanted, bool with_states = true) {
  if (with_states) {
    const format::Verdict verdict = format::verify_folder(folder);
    EXPECT_TRUE(verdict.whole()) << folder << ": " << verdict.text();
  }
  const auto got = tensors_of(folder, with_states), expected = tensors_of(wanted, with_states);
  EXPECT_EQ(got.size(), expected.size()) << folder;
  for (const auto& [name, value] : expected) EXPECT_TRUE(got.count(name) == 1 && got.at(name) == value) << name;
}

class StagesSave : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return path_join(out_.path(), name); }
  /// Saves with one process and returns the folder.
  std::string whole(const std::string& optimizer = "adamw") const {
    run_ranks(1, [&](comm::World& world) {
      Rank one(world, {.optimizer = optimizer});
      one.fill(1);
      one.save(path(optimizer), {});
    });
    return path(optimizer);
  }
  /// Layouts of one number of ranks: each saves SHARDED and FULL, and loads both its own checkpoint and one process's.
  void check(const std::vector<Layout>& layouts) const {
    std::map<std::string, std::string> wholes;
    for (const Layout& layout : layouts)
      if (!wholes.count(layout.optimizer)) wholes[layout.optimizer] = whole(layout.optimizer);
    run_ranks(layouts[0].ranks(), [&](comm::World& world) {
      for (const Layout& layout : layouts) {
        SCOPED_TRACE(layout.name());
        const std::string& one = wholes.at(layout.optimizer);
        Rank rank(world, layout);
        rank.fill(2);
        rank.load(one);
        rank.expect_holds(1);
        for (const bool full : {false, true}) {
          const std::string folder = path(concat(layout.name(), full ? " full" : " sharded"));
          rank.fill(1);
          rank.save(folder, {.full = full}, /*in_memory=*/!full);
          rank.fill(2);
          rank.load(folder);
          rank.expect_holds(1);
          if (world.rank() == 0) expect_same(folder, one);
        }
        if (world.rank() == 0) {
          EXPECT_EQ(layout.ranks(), mesh_ranks(rank));
        }
        world.group().barrier().wait();
      }
    });
    for (const int ranks : {1, 2})
      run_ranks(ranks, [&](comm::World& world) {
        for (const Layout& layout : layouts)
          for (const char* form : {" sharded", " full"}) {
            SCOPED_TRACE(concat(layout.name(), form, " on ", ranks));
            Rank rank(world, {.data = ranks, .optimizer = layout.optimizer});
            rank.fill(2);
            rank.load(path(layout.name() + form));
            rank.expect_holds(1);
          }
      });
  }

 private:
  static std::int64_t mesh_ranks(Rank& rank) {
    checkpoint::RunState state;
    rank.core().write_to(state, RunConfig());
    return state.mesh->ranks;
  }
  TemporaryFolder out_;
};

TEST_F(StagesSave, two_stages_of_one_rank) {
  check({{.stages = 2, .strategy = "ddp"}, {.stages = 2, .strategy = "full_shard"}});
}

TEST_F(StagesSave, two_stages_of_two_ranks) {
  check({{.stages = 2, .data = 2, .strategy = "ddp"},
         {.stages = 2, .data = 2, .strategy = "zero1"},
         {.stages = 2, .data = 2, .strategy = "full_shard"},
         {.stages = 2, .data = 2, .strategy = "full_shard", .shards = 1},
         {.stages = 2, .data = 2, .strategy = "full_shard", .optimizer = "adafactor"},
         {.stages = 2, .data = 2, .strategy = "zero1", .optimizer = torchs}});
}

TEST_F(StagesSave, two_stages_of_copies_that_are_divided) {
  check({{.stages = 2, .data = 4, .strategy = "hybrid_shard", .shards = 2}});
}

// The last stage has no tensor that is cut: one rank of tp writes it.
TEST_F(StagesSave, two_stages_of_tensor_parallel_ranks) {
  check({{.stages = 2, .tensor = 2, .strategy = "ddp"}});
  check({{.stages = 2, .data = 2, .tensor = 2, .strategy = "full_shard"}});
}

// The fields that Hugging Face's reader requires of a model in several files.
TEST_F(StagesSave, a_finished_model_is_a_folder_with_an_index) {
  const std::string one = whole();
  for (const std::int64_t most : {std::int64_t{1} << 40, std::int64_t{200}}) {
    const std::string folder = path(concat("model ", most));
    const std::string announced = path(concat("announced ", most));  // by a process that exits before this one reads it
    const auto announce = [&](const std::vector<std::string>& names) {
      std::string text;
      for (const std::string& name : names)
        text += name + (path_exists(path_join(folder, name)) ? " is there\n" : "\n");
      write_file_atomically(announced, text);
    };
    run_ranks(2, [&](comm::World& world) {
      Rank rank(world, {.stages = 2, .strategy = "ddp"});
      rank.fill(1);
      train::save_now(world.group(), {{.sharded = &rank.sharded()}},
                      {.form = {.optimizer = false, .full = true, .max_file_bytes = most},
                       .folder = folder,
                       .model = train::ModelFolder{
                           .replaces = [](const std::string& name) { return name.ends_with(".safetensors"); },
                           .before_publishing = announce}});
    });
    EXPECT_EQ(read_file(announced), concat(join(list_folder(folder), "\n"), "\n"))
        << "a run lists its files even if it is killed before all of them exist";
    expect_same(folder, one, /*with_states=*/false);
    const std::string index_path = path_join(folder, "model.safetensors.index.json");
    const auto index = format::parse_safetensors_index(read_file(index_path), index_path);
    const std::vector<std::string> files = list_folder(folder);
    EXPECT_EQ(index.files.size() + 1, files.size()) << "nothing but the files of the index, and itself";
    EXPECT_EQ(index.total_size, format::SafetensorsFolder(one).data_bytes());
    if (most > 200)
      EXPECT_EQ(index.files,
                (std::vector<std::string>{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}));
    else
      EXPECT_GT(index.files.size(), 4U);
  }
}

template <class Work>
std::string input_error_of(Work&& work) {
  try {
    work();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST_F(StagesSave, a_folder_of_another_model_is_refused_on_every_rank) {
  run_ranks(1, [&](comm::World& world) {
    for (const std::vector<int>& layers : {std::vector<int>{0, 1, 2, 3}, std::vector<int>{1, 2}}) {
      Rank one(world, {}, layers);
      one.fill(1);
      one.save(path(concat(layers.size(), " layers")), {});
    }
    Rank one(world, {}, all_layers, /*with_end=*/false);
    one.fill(1);
    one.save(path("no end"), {});
  });
  const std::string sgd = whole("sgd");
  run_ranks(4, [&](comm::World& world) {
    Rank rank(world, {.stages = 2, .data = 2});
    Sharded& sharded = rank.sharded();
    const auto weights = [&](const std::string& folder) {
      return input_error_of([&] { train::load_weights(rank.core().module(), sharded, folder); });
    };
    const auto states = [&](const std::string& folder) {
      return input_error_of([&] { rank.core().update().restore(sharded, 1, folder, nullptr, "optimizer"); });
    };
    const auto has = [](const std::string& text, const std::string& part) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    };
    has(weights(path("4 layers")), "has 11 tensors, but this model has 9");
    has(weights(path("2 layers")), "has no tensor layers.0.weight");
    has(weights(path("no end")), "has no tensor norm.weight");
    has(weights(path("nothing")), "nothing");
    has(states(path("4 layers")), "has 22 optimizer tensors, of which 18 are among the 18 of this run");
    has(states(path("2 layers")), "has 14 optimizer tensors, of which 14 are among the 18 of this run");
    has(states(path("no end")), "has 14 optimizer tensors, of which 14 are among the 18 of this run");
    has(states(sgd), "has 0 optimizer tensors");
    world.group().barrier().wait();
  });
}

TEST(StagesNorm, adds_up_over_stages_and_says_where_it_is_not_finite) {
  const auto fill_gradients = [](Rank& rank) {
    for (const ShardedParameter& p : rank.sharded().named_parameters()) {
      at::Tensor local = p.local;
      local.mutable_grad() = mock_data(p.name, 1, p.begin, local.numel()).view(local.sizes());
    }
  };
  for (const int data : {1, 2})
    run_ranks(2 * data, [&](comm::World& world) {
      Rank rank(world, {.stages = 2, .data = data});
      fill_gradients(rank);
      double sum = 0;
      const Net whole(all_layers, true, true);
      for (const auto& item : whole.named_parameters())
        sum += mock_data(item.key(), 1, 0, item.value().numel()).to(at::kDouble).square().sum().item<double>();
      const double norm = rank.sharded().grad_norm();
      EXPECT_NEAR(norm, std::sqrt(sum), 1e-12 * norm) << "the tied table counts once";
      for (const ShardedParameter& p : rank.sharded().named_parameters())
        if (p.name == "norm.weight") p.local.grad().fill_(std::nan(""));
      try {
        rank.sharded().clip_grad_norm(1);
        ADD_FAILURE() << "a norm that is not finite was accepted";
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("'norm.weight'"), std::string::npos) << error.what();
      }
    });
}

}  // namespace
