// A user's own modules in pipelines of real processes, compared with one process.
#include <tests/error_of.h>
#include <tests/pipeline/somebodys.h>

#include <tessera/base/file.h>
#include <tessera/layout/schedule/files.h>
#include <tessera/layout/schedule/table.h>
#include <tessera/parallel/deferred/deferred.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

namespace {

using namespace tessera;
using namespace tessera::testing;

std::set<std::string> names_in(const torch::nn::Module& module) {
  std::set<std::string> names;
  for (const auto& item : module.named_parameters()) names.insert(item.key());
  return names;
}

PipelineParallelOptions with(std::string schedule, int micro_batches, int stages_per_rank = 0) {
  PipelineParallelOptions options;
  options.schedule = std::move(schedule);
  options.micro_batches = micro_batches;
  options.stages_per_rank = stages_per_rank;
  options.loss = squares;
  return options;
}

class Module : public ::testing::TestWithParam<int> {};  // ranks
INSTANTIATE_TEST_SUITE_P(Ranks, Module, ::testing::Values(1, 2, 4));

TEST_P(Module, Sequential_under_every_schedule_has_the_bits_of_one_process) {
  const int ranks = GetParam();
  std::map<int, Trained> references;
  for (const int m : {2, 4}) {
    auto net = small_sequential();
    references[m] = train_alone(*net, [&](const at::Tensor& x) { return net->forward(x); }, m, 3);
  }
  run_ranks(ranks, [&](comm::World& world) {
    int count = 0;
    for (const auto& row : layout::schedule::schedules())
      for (const int m : {2, 4}) {
        auto net = small_sequential();
        PipelineParallel pipe = pipeline(*net, with(std::string(row.name), m));
        const Trained mine = train_in_pipeline(pipe, *net, 3);
        EXPECT_EQ(differs(mine, references.at(m)), "") << row.name << ", " << m;
        EXPECT_FALSE(mine.gradients.empty() && ranks < 4) << row.name;
        ++count;
      }
    EXPECT_GE(count, 16);
    EXPECT_EQ(world.size(), ranks);
  });
}

TEST_P(Module, MicroBatchesOfDifferentSizes) {
  const int ranks = GetParam();
  auto net = small_sequential();
  const Trained reference = train_alone(*net, [&](const at::Tensor& x) { return net->forward(x); }, 3, 2, 7);
  run_ranks(ranks, [&](comm::World& world) {
    auto mine = small_sequential();
    PipelineParallelOptions options = with("1f1b", 3);
    options.variable_sizes = true;
    PipelineParallel pipe(*mine, options);
    EXPECT_EQ(differs(train_in_pipeline(pipe, *mine, 2, 7), reference), "");
    // Micro-batches are cut by the caller and undefined on ranks that do not use them.
    std::vector<at::Tensor> inputs, targets;
    if (world.rank() == 0) inputs = batch_inputs(0, 7).tensor_split(3);
    if (world.rank() == ranks - 1) targets = batch_targets(0, 7).tensor_split(3);
    auto again = small_sequential();
    PipelineParallel second(*again, options);
    EXPECT_EQ(second.train_batch(inputs, targets), reference.losses[0]);
  });
}

// Each rank has the parameters of its own layers, under their names. The memory of the other layers is freed, and
// running one is an error that names its stage and rank.
TEST(ModuleParts, OtherRanksLayersAreLetGo) {
  run_ranks(2, [](comm::World& world) {
    auto net = small_sequential();
    const auto first = net->ptr<torch::nn::LinearImpl>(0), last = net->ptr<torch::nn::LinearImpl>(7);
    const c10::weak_intrusive_ptr<c10::StorageImpl> memory(
        (world.rank() == 0 ? last : first)->weight.storage().getWeakStorageImpl());
    PipelineParallelOptions options = with("1f1b", 2);
    options.cut = PipelineCut::before({"4"});
    const PipelineParallel pipe = pipeline(*net, options);
    EXPECT_EQ(pipe.describe(), "1f1b, 2 micro-batches; rank 0: 0-3; rank 1: 4-7");
    const std::set<std::string> own[] = {{"0.weight", "0.bias", "2.weight", "2.bias", "3.weight", "3.bias"},
                                         {"4.weight", "4.bias", "5.weight", "5.bias", "7.weight", "7.bias"}};
    EXPECT_EQ(names_in(*net), own[world.rank()]);
    EXPECT_EQ(net->named_buffers().size(), world.rank() == 0 ? 0u : 3u);
    EXPECT_TRUE(memory.expired());
    if (world.rank() == 0) {
      EXPECT_EQ(error_of([&] { net->forward(batch_inputs(0)); }),
                "layer '4' of a pipeline is in stage 1 on rank 1; this rank has released it: run batches through the "
                "pipeline");
      EXPECT_NE(
          error_of([&] { last->forward(batch_inputs(0)); }).find("layer '7' of a pipeline is in stage 1 on rank 1"),
          std::string::npos);
      EXPECT_NE(error_of<std::exception>([&] { (void)last->bias.data_ptr(); }).find("layer '7'"), std::string::npos);
    }
    net->eval();  // the remainder is an ordinary module
    EXPECT_FALSE(net->is_training());
  });
}

/// A module that is not a Sequential: it has a list of blocks, uses the second one twice, and has a parameter of its
/// own.
struct ListedImpl : torch::nn::Module {
  ListedImpl() : head(width, width) {
    shift = register_parameter("shift", at::full({width}, 0.1));
    for (int i = 0; i < 4; ++i) blocks->push_back(torch::nn::Linear(width, width));
    register_module("blocks", blocks);
    register_module("head", head);
    to(at::kDouble);
  }
  at::Tensor block(int i, const at::Tensor& x) { return x + at::tanh(blocks[i]->as<torch::nn::Linear>()->forward(x)); }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = x + shift;
    for (const int i : {0, 1, 2, 1, 3}) y = block(i, y);
    return head(y);
  }
  std::vector<PipelineLayer> layers() {
    const auto use = [this](int i) { return [this, i](const at::Tensor& x) { return block(i, x); }; };
    return {{"enter", [this](const at::Tensor& x) { return x + shift; }, {"shift"}},
            {"blocks.0", use(0)},
            {"blocks.1", use(1)},
            {"blocks.2", use(2)},
            {"again", use(1), {"blocks.1"}},
            {"blocks.3", use(3)},
            {"head", [this](const at::Tensor& x) { return head(x); }}};
  }
  at::Tensor shift;
  torch::nn::ModuleList blocks;
  torch::nn::Linear head;
};
TORCH_MODULE(Listed);

TEST(ModuleParts, ListedLayersAndABlockThatIsUsedTwice) {
  at::manual_seed(8);
  Listed whole;
  const Trained reference = train_alone(*whole, [&](const at::Tensor& x) { return whole->forward(x); }, 4, 2);
  for (const int ranks : {2, 3})
    run_ranks(ranks, [&](comm::World& world) {
      at::manual_seed(8);
      Listed net;
      PipelineParallelOptions options = with("1f1b", 4);
      if (ranks == 2) options.cut = PipelineCut::before({"again"});
      if (ranks == 3) options.cut = PipelineCut::before({"blocks.2", "again"});
      PipelineParallel pipe = pipeline(*net, net->layers(), options);
      const std::set<std::string> own[] = {
          {"shift", "blocks.0.weight", "blocks.0.bias", "blocks.1.weight", "blocks.1.bias"},
          {"blocks.2.weight", "blocks.2.bias"},
          {"blocks.1.weight", "blocks.1.bias", "blocks.3.weight", "blocks.3.bias", "head.weight", "head.bias"}};
      if (ranks == 3) {
        EXPECT_EQ(names_in(*net), own[world.rank()]);
      }
      EXPECT_EQ(differs(train_in_pipeline(pipe, *net, 2), reference, 1e-12), "");
    });
}

/// Embedding and head share one matrix.
struct TableImpl : torch::nn::Module {
  TableImpl() { weight = register_parameter("weight", at::randn({width, width}, at::kDouble) * 0.3); }
  at::Tensor forward(const at::Tensor& x) { return at::matmul(x, weight); }
  at::Tensor weight;
};
TORCH_MODULE(Table);
struct TransposedImpl : torch::nn::Module {
  explicit TransposedImpl(const at::Tensor& table) { weight = register_parameter("table", table); }
  at::Tensor forward(const at::Tensor& x) { return at::matmul(x, weight.t()); }
  at::Tensor weight;
};
TORCH_MODULE(Transposed);
torch::nn::Sequential tied_sequential(bool in_the_middle = false, std::uint64_t seed = 12) {
  at::manual_seed(seed);
  Table table;
  torch::nn::Linear one(width, width), two(width, width);
  one->to(at::kDouble);
  two->to(at::kDouble);
  torch::nn::Sequential net(table, one);
  if (in_the_middle) net->push_back(Transposed(table->weight));
  net->push_back(two);
  net->push_back(Transposed(table->weight));
  return net;
}

// A deferred module builds only the layers that stay, with the values of ordinary construction.
TEST(ModuleParts, DeferredModulesBuildTheirOwnLayersOnly) {
  struct Net : torch::nn::SequentialImpl {
    Net() {
      for (int i = 0; i < 6; ++i) push_back(Table());
    }
  };
  at::manual_seed(3);
  const auto whole = std::make_shared<Net>();
  const Trained reference = train_alone(*whole, [&](const at::Tensor& x) { return whole->forward(x); }, 4, 2);
  run_ranks(2, [&](comm::World& world) {
    at::manual_seed(3);
    const auto net = deferred<Net>();
    const auto all = net->parameters();
    PipelineParallel pipe(*net, with("zbv", 4));
    EXPECT_EQ(net->parameters().size(), 3u);
    for (const at::Tensor& parameter : all) EXPECT_THROW((void)parameter.data_ptr(), std::exception);
    EXPECT_EQ(differs(train_in_pipeline(pipe, *net, 2), reference), "");
    EXPECT_EQ(world.size(), 2);
  });
}

TEST(ModuleParts, TiedParametersAreAddedUp) {
  for (const auto& [ranks, schedule, middle] :
       {std::tuple(2, "1f1b", false), std::tuple(2, "zbv", false), std::tuple(4, "zb_h1", false),
        std::tuple(3, "gpipe", true), std::tuple(2, "interleaved", true)}) {
    auto whole = tied_sequential(middle);
    const Trained reference = train_alone(*whole, [&](const at::Tensor& x) { return whole->forward(x); }, 4, 3);
    const auto outcomes = run_ranks(ranks, [&](comm::World& world) {
      auto net = tied_sequential(middle);
      PipelineParallelOptions options = with(schedule, 4);
      options.cut = PipelineCut::by_layers();
      PipelineParallel pipe(*net, options);
      const Trained mine = train_in_pipeline(pipe, *net, 3);
      EXPECT_EQ(differs(mine, reference, 1e-12), "") << schedule;
      if (world.rank() == ranks - 1 && std::string(schedule) != "zbv") {
        EXPECT_EQ(pipe.held_by_earlier_stage(), std::vector<std::string>{"0.weight"});
        EXPECT_EQ(names_in(*net).count("0.weight"), 1u);  // as on the first rank
      }
      if (mine.weights.count("0.weight") != 0)
        post(concat(std::hexfloat, mine.weights.at("0.weight").sum().item<double>()));
      // Counted once in the norm, scaled on every rank.
      const double norm = pipe.clip_grad_norm(1e-3);
      double squares = 0;
      for (const auto& item : once(whole->parameters())) squares += item.grad().square().sum().item<double>();
      EXPECT_NEAR(norm, std::sqrt(squares), 1e-12);
      EXPECT_NEAR(pipe.clip_grad_norm(0), 1e-3, 1e-8);
    });
    std::set<std::string> values;
    for (const auto& outcome : outcomes) values.insert(outcome.posted.begin(), outcome.posted.end());
    EXPECT_EQ(values.size(), 1u) << schedule;
  }
}

TEST(ModuleParts, A_norm_that_is_not_finite_names_the_stage_that_it_came_from) {
  run_ranks(2, [&](comm::World&) {
    auto net = small_sequential();
    PipelineParallel pipe(*net, with("1f1b", 4));
    at::Tensor inputs = batch_inputs(0).clone();
    inputs[inputs.size(0) - 1].fill_(std::numeric_limits<double>::quiet_NaN());  // in micro-batch 3
    EXPECT_TRUE(std::isnan(pipe.train_batch(inputs, batch_targets(0))));
    const std::string says = error_of<Error>([&] { pipe.clip_grad_norm(1); });
    EXPECT_NE(says.find("(first in stage 0, micro-batch 3 (0F3), on rank 0)"), std::string::npos) << says;
  });
}

TEST(ModuleParts, EvaluationAndOutputs) {
  auto whole = small_sequential();
  whole->eval();
  const at::NoGradGuard none;
  // Computed in the pipeline's micro-batches: a product of all rows at once may round differently (on some processors
  // MKL chooses its kernel by the number of rows).
  std::vector<at::Tensor> parts;
  double loss = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    parts.push_back(whole->forward(batch_inputs(0).tensor_split(4)[i]));
    loss += 0.25 * squares(parts.back(), batch_targets(0).tensor_split(4)[i]).item<double>();
  }
  const at::Tensor wanted = at::cat(parts);
  run_ranks(2, [&](comm::World& world) {
    for (const char* schedule : {"1f1b", "zbv"}) {
      auto net = small_sequential();
      PipelineParallel pipe(*net, with(schedule, 4));
      net->eval();
      const bool last = world.rank() == pipe.schedule().rank_of.back();
      EXPECT_EQ(pipe.evaluate_batch(batch_inputs(0), batch_targets(0)), loss);
      const at::Tensor here = pipe.forward_batch(batch_inputs(0));
      EXPECT_EQ(here.defined(), last);
      EXPECT_TRUE(!last || at::equal(here, wanted));
      EXPECT_TRUE(at::equal(pipe.forward_batch(batch_inputs(0), /*everywhere=*/true), wanted));
      for (const at::Tensor& parameter : net->parameters()) EXPECT_FALSE(parameter.grad().defined());
    }
  });
}

TEST(ModuleParts, SchedulesFromFiles) {
  namespace schedule = layout::schedule;
  const auto made = schedule::make_schedule("zbv", {.ranks = 2, .stages_per_rank = 2, .micro_batches = 4});
  const std::string path = (std::filesystem::temp_directory_path() / concat("schedule_", getpid(), ".csv")).string();
  write_file_atomically(path, schedule::to_csv(made));
  auto whole = small_sequential();
  const Trained reference = train_alone(*whole, [&](const at::Tensor& x) { return whole->forward(x); }, 4, 2);
  run_ranks(2, [&](comm::World&) {
    auto net = small_sequential();
    PipelineParallel pipe(*net, with(path, 0));
    EXPECT_EQ(pipe.schedule().rank_of, made.rank_of);
    EXPECT_EQ(differs(train_in_pipeline(pipe, *net, 2), reference), "");
    auto other = small_sequential();
    EXPECT_NE(error_of([&] {
                PipelineParallel(*other, with(path, 8));
              }).find("has 4 micro-batches, but the options specify 8"),
              std::string::npos);
    EXPECT_NE(
        error_of([&] { PipelineParallel(*other, with(path, 4, 1)); }).find("has 4 stages, but the options specify 2"),
        std::string::npos);
  });
  std::filesystem::remove(path);
}

TEST(ModuleCuts, ByLayersParametersCostsAndTime) {
  run_ranks(2, [](comm::World& world) {
    const auto cut = [&](PipelineCut how, const char* schedule = "1f1b") {
      auto net = small_sequential();
      PipelineParallelOptions options = with(schedule, 2);
      options.cut = std::move(how);
      return PipelineParallel(*net, options).describe().substr(std::string(schedule).size() + 19);
    };
    EXPECT_EQ(cut(PipelineCut::by_layers()), "rank 0: 0-3; rank 1: 4-7");
    EXPECT_EQ(cut(PipelineCut::by_parameters()), "rank 0: 0-2; rank 1: 3-7");  // 162 and 102 parameters
    EXPECT_EQ(cut(PipelineCut::by_costs({9, 1, 1, 1, 1, 1, 1, 1})), "rank 0: 0; rank 1: 1-7");
    EXPECT_EQ(cut(PipelineCut::by_costs({9, 1, 1, 1, 1, 1, 1, 1}), "zbv"),
              "rank 0: 0 and nothing; rank 1: 1-3 and 4-7");
    EXPECT_EQ(cut(PipelineCut::before({"7"})), "rank 0: 0-6; rank 1: 7");
    EXPECT_EQ(world.size(), 2);
  });
}

/// A layer that takes a given time for forward and backward together.
struct SlowImpl : torch::nn::Module {
  explicit SlowImpl(int the_ms) : ms(the_ms) { scale = register_parameter("scale", at::ones({1}, at::kDouble)); }
  at::Tensor forward(const at::Tensor& x) {
    calls++;
    (void)at::rand({1});
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    return x * scale;
  }
  int ms, calls = 0;
  at::Tensor scale;
};
TORCH_MODULE(Slow);

TEST(ModuleCuts, MeasuredCostsBalanceRanks) {
  run_ranks(2, [](comm::World& world) {
    for (const auto& [schedule, wanted] :
         {std::pair("1f1b", "rank 0: 0-4; rank 1: 5-6"), std::pair("zbv", "rank 0: 0 and 6; rank 1: 1-4 and 5")}) {
      torch::nn::Sequential net;
      std::vector<Slow> layers;
      for (const int ms : {32, 8, 8, 8, 8, 32, 32}) layers.emplace_back(ms), net->push_back(layers.back());
      PipelineParallelOptions options = with(schedule, 2);
      options.cut = PipelineCut::by_measured(batch_inputs(0, 4));
      at::manual_seed(1);
      const at::Tensor next = at::rand({1});
      at::manual_seed(1);
      const PipelineParallel pipe(*net, options);
      EXPECT_TRUE(at::equal(at::rand({1}), next));  // random states are unchanged
      EXPECT_EQ(pipe.describe().substr(std::string(schedule).size() + 19), wanted);
      EXPECT_NEAR(pipe.stages()[0].cost, std::string(schedule) == "1f1b" ? 64e-3 : 32e-3, 16e-3);
      int measured = 0;
      for (const Slow& layer : layers) {
        measured += layer->calls > 0;
        EXPECT_LE(layer->calls, 6);
        EXPECT_FALSE(layer->scale.grad().defined());
      }
      EXPECT_EQ(measured, world.rank() == 0 ? 3 : 4);
    }
  });
}

TEST(ModuleErrors, AreToldBeforeAnythingRuns) {
  run_ranks(2, [](comm::World& world) {
    const auto said = [&](PipelineParallelOptions options) {
      auto net = small_sequential();
      return error_of([&] { PipelineParallel(*net, std::move(options)); });
    };
    PipelineParallelOptions options = with("1f1b", 2);
    options.cut = PipelineCut::before({"4", "6"});
    EXPECT_EQ(said(options),
              "pipeline: PipelineCut::before() names 2 layers, so it makes 3 stages, but the schedule has 2: name 1");
    options.cut = PipelineCut::before({"9"});
    EXPECT_EQ(said(options),
              "pipeline: PipelineCut::before() names '9', but no layer has that name; did you mean '0'?");
    options = with("zbv", 2);
    options.cut = PipelineCut::before({"4", "3", "5"});
    EXPECT_EQ(said(options),
              "pipeline: PipelineCut::before() names '3' after '4', which comes later in the model; name them in the "
              "model's order");
    options.cut = PipelineCut::by_costs({1, 2});
    EXPECT_EQ(said(options),
              "pipeline: PipelineCut::by_costs() has 2 costs, but the model has 8 layers: pass one cost per layer");
    options = with("1f1b", -1);
    EXPECT_NE(said(options).find("micro_batches = -1"), std::string::npos);
    EXPECT_NE(said(with("1f1c", 2)).find("1f1b"), std::string::npos);
    options = with("1f1b", 2);
    options.loss_reduction = comm::Reduction::max;
    EXPECT_NE(said(options).find("must be mean or sum"), std::string::npos);

    torch::nn::Sequential none, one(torch::nn::Linear(2, 2));
    EXPECT_EQ(error_of([&] { PipelineParallel(*none, with("1f1b", 2)); }),
              "pipeline: the torch::nn::Sequential has no layers");
    EXPECT_EQ(error_of([&] { PipelineParallel(*one, with("1f1b", 2)); }),
              "pipeline: rank 1 of 2 would have no layers: 1 are cut into 2 stages; use fewer ranks or stages, or cut "
              "elsewhere (PipelineCut::before)");

    torch::nn::Sequential different(torch::nn::Linear(2, 2), torch::nn::Linear(2, 2 + world.rank()));
    EXPECT_NE(error_of([&] {
                PipelineParallel(*different, with("1f1b", 2));
              }).find("construct the same module with the same options on every rank"),
              std::string::npos);
    auto tied = tied_sequential(false, static_cast<std::uint64_t>(world.rank()));
    EXPECT_EQ(
        error_of([&] { PipelineParallel(*tied, with("1f1b", 2)); }),
        "pipeline: tied parameter '0.weight' has different values on rank 1 than on rank 0; construct the module with "
        "the same seed on every rank");

    Listed net;
    const auto listed = [&](const std::function<void(std::vector<PipelineLayer>&)>& change) {
      auto layers = net->layers();
      change(layers);
      return error_of([&] { PipelineParallel(*net, std::move(layers), with("1f1b", 2)); });
    };
    EXPECT_EQ(listed([](auto& layers) { layers.erase(layers.begin()); }),
              "pipeline: parameter 'shift' does not belong to any layer, so no rank would train it; name it, or its "
              "module, in "
              "the `modules` of the layer that uses it");
    EXPECT_EQ(listed([](auto& layers) { layers[1].name = "block.0"; }),
              "pipeline: layer 'block.0' names 'block.0', which is not a registered module or parameter; did you mean "
              "'blocks.0'? (PipelineLayer::modules; {} means the one with the layer's name)");
    EXPECT_NE(listed([](auto& layers) { layers[2].name = "blocks.0"; }).find("two layers have the name 'blocks.0'"),
              std::string::npos);
    EXPECT_NE(listed([](auto& layers) { layers[0].modules = {"shift", "blocks"}; }).find("inside of it"),
              std::string::npos);
    EXPECT_EQ(listed([](auto& layers) { layers[0].forward = nullptr; }),
              "pipeline: layer 0 'enter' has no function (PipelineLayer::forward)");
    EXPECT_EQ(listed([](auto& layers) { layers.clear(); }), "pipeline: no layers are given");
    EXPECT_EQ(names_in(*net).size(), 11u);  // no layer was released

    torch::nn::Linear a(2, 2), b(2, 2);
    b->weight.set_data(a->weight.detach());
    torch::nn::Sequential views(a, b);
    EXPECT_NE(
        error_of([&] { PipelineParallel(*views, with("1f1b", 2)); }).find("to tie them, register the same tensor"),
        std::string::npos);
  });
}

TEST(ModuleErrors, InBatches) {
  run_ranks(1, [](comm::World&) {
    auto net = small_sequential();
    PipelineParallel pipe(*net, with("1f1b", 3));
    EXPECT_EQ(
        error_of([&] { pipe.train_batch(batch_inputs(0), batch_targets(0)); }),
        "pipeline: inputs of sizes [8, 3, 6] cannot be cut along dimension 0 into 3 micro-batches; give a multiple "
        "of that many rows, or allow sizes to differ (variable_sizes)");
    EXPECT_EQ(
        error_of([&] { pipe.train_batch(batch_inputs(0, 2), batch_targets(0, 2)); }),
        "pipeline: inputs of sizes [2, 3, 6] cannot be cut along dimension 0 into 3 micro-batches; give a multiple "
        "of that many rows, or fewer micro-batches");
    EXPECT_EQ(error_of([&] { pipe.train_batch(at::Tensor(), batch_targets(0, 9)); }),
              "pipeline: 0 micro-batches of inputs on rank 0, which has the first stage; pass 3 defined tensors there, "
              "or a batch to cut");
    EXPECT_NE(error_of([&] { pipe.train_batch(batch_inputs(0, 9), at::Tensor()); }).find("0 micro-batches of targets"),
              std::string::npos);
    auto again = small_sequential();
    EXPECT_NE(error_of([&] {
                PipelineParallel(*again, {.micro_batches = 3}).train_batch(batch_inputs(0, 9), batch_targets(0, 9));
              }).find("no loss function was given"),
              std::string::npos);
    PipelineParallelOptions options = with("1f1b", 3);
    options.loss = [](const at::Tensor& y, const at::Tensor&) { return y; };
    EXPECT_NE(error_of([&] {
                PipelineParallel(*again, options).train_batch(batch_inputs(0, 9), batch_targets(0, 9));
              }).find("pipeline: stage 0, micro-batch 0 (0F0): the loss function returned a tensor of sizes [3, 3, 6]"),
              std::string::npos);
  });
}

/// Anything may pass between layers, but only one tensor between stages.
struct PairImpl : torch::nn::Module {
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x) { return {x, x + 1}; }
};
TORCH_MODULE(Pair);
struct JoinImpl : torch::nn::Module {
  at::Tensor forward(const std::tuple<at::Tensor, at::Tensor>& pair) { return std::get<0>(pair) * std::get<1>(pair); }
};
TORCH_MODULE(Join);

TEST(ModuleErrors, SeveralTensorsBetweenStages) {
  RankOptions run;
  run.end_after_failure = false;
  const auto sequential = [] {
    at::manual_seed(2);
    torch::nn::Sequential net(torch::nn::Linear(width, width), Pair(), Join(), torch::nn::Linear(width, width));
    net->to(at::kDouble);
    return net;
  };
  auto whole = sequential();
  const Trained reference = train_alone(*whole, [&](const at::Tensor& x) { return whole->forward(x); }, 2, 2);
  const auto outcomes = run_ranks_outcomes(
      2,
      [&](comm::World&) {
        for (const char* first : {"1", "3", "2"}) {
          auto net = sequential();
          PipelineParallelOptions options = with("1f1b", 2);
          options.cut = PipelineCut::before({first});
          PipelineParallel pipe(*net, options);
          EXPECT_EQ(differs(train_in_pipeline(pipe, *net, 2), reference), "") << first;
          post(first);
        }
      },
      run);
  EXPECT_EQ(outcomes[0].posted, (std::vector<std::string>{"1", "3"}));
  EXPECT_NE(outcomes[0].error.find("pipeline: stage 0, micro-batch 0 (0F0): layer '1' returns a std::tuple<at::Tensor, "
                                   "at::Tensor>; only a single tensor can be passed from stage to stage"),
            std::string::npos)
      << outcomes[0].error;
  EXPECT_FALSE(outcomes[1].ok);
  EXPECT_FALSE(outcomes[1].killed_by_harness);
}

}  // namespace
