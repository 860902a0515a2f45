// Unmodified modules that are cut by observing their forward, in pipelines of real processes against one process.
#include <examples/user_module.h>
#include <tests/error_of.h>
#include <tests/pipeline/somebodys.h>

#include <tessera/comm/mesh_groups.h>
#include <tessera/layout/schedule/table.h>
#include <tessera/parallel/deferred/deferred.h>

#include <set>

namespace {

using namespace tessera;
using namespace tessera::testing;

struct StepImpl : torch::nn::Module {
  explicit StepImpl(bool the_in_place)
      : norm(torch::nn::LayerNormOptions({width})),
        up(width, 2 * width),
        down(2 * width, width),
        in_place(the_in_place) {
    register_module("norm", norm);
    register_module("up", up);
    register_module("down", down);
  }
  at::Tensor forward(at::Tensor x, const at::Tensor& mask) {
    if (in_place) x.mul_(0.9);
    at::Tensor y = down(at::gelu(up(norm(x)))) * mask;
    return in_place ? y.add_(x) : x + y;
  }
  torch::nn::LayerNorm norm;
  torch::nn::Linear up, down;
  bool in_place;
};
TORCH_MODULE(Step);

/// Residual blocks that share a mask; a BatchNorm; buffers of the module and of a block. Between the blocks rows are
/// the first or (transposed) the second dimension.
struct ResidualImpl : torch::nn::Module {
  ResidualImpl(bool in_place, int the_skip, bool the_transposed)
      : enter(width, width),
        statistics(torch::nn::BatchNorm1d(3)),
        head(width, width),
        skip(the_skip),
        transposed(the_transposed) {
    register_module("enter", enter);
    for (int i = 0; i < 4; ++i) blocks->push_back(Step(in_place));
    register_module("blocks", blocks);
    register_module("statistics", statistics);
    register_module("head", head);
    scale = register_buffer("scale", at::full({width}, 0.5));
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& input) {
    const at::Tensor mask = (at::arange(width, input.options()) * scale).cos();  // depends on no parameter
    at::Tensor x = enter(input);
    x = (transposed ? x.transpose(0, 1) : x).sin();  // unlike tanh it does not save its output, which blocks may change
    at::Tensor kept;
    for (std::size_t i = 0; i < blocks->size(); ++i) {
      if (static_cast<int>(i) == skip) kept = x;
      x = blocks[i]->as<StepImpl>()->forward(x, mask);
    }
    if (kept.defined()) x = x + kept;
    return head(statistics((transposed ? x.transpose(0, 1) : x).contiguous()));
  }
  torch::nn::Linear enter;
  torch::nn::ModuleList blocks;
  torch::nn::BatchNorm1d statistics;
  torch::nn::Linear head;
  at::Tensor scale;
  int skip;
  bool transposed;
};
TORCH_MODULE(Residual);

Residual residual(bool in_place = false, int skip = -1, bool transposed = false) {
  at::manual_seed(31);
  return Residual(in_place, skip, transposed);
}

PipelineParallelOptions with(std::string schedule, int micro_batches) {
  PipelineParallelOptions options;
  options.schedule = std::move(schedule);
  options.micro_batches = micro_batches;
  options.cut = PipelineCut::by_layers();
  options.loss = squares;
  return options;
}

class Observed : public ::testing::TestWithParam<int> {};  // ranks
INSTANTIATE_TEST_SUITE_P(Ranks, Observed, ::testing::Values(1, 2, 4));

TEST_P(Observed, UneditedModules_have_the_bits_of_one_process) {
  for (const bool in_place : {false, true}) {
    auto whole = residual(in_place);
    const Trained reference = train_alone(*whole, [&](const at::Tensor& x) { return whole->forward(x); }, 4, 3);
    whole->eval();
    const at::NoGradGuard none;
    std::vector<at::Tensor> parts;
    for (const at::Tensor& part : batch_inputs(9).tensor_split(4)) parts.push_back(whole->forward(part));
    const at::Tensor outputs = at::cat(parts);
    run_ranks(GetParam(), [&](comm::World& world) {
      for (const char* schedule : {"1f1b", "zb_h1", "zbv", "interleaved"}) {
        if (world.size() == 4 && std::string(schedule) == "interleaved") continue;  // seven layers
        auto net = residual(in_place);
        if (world.size() == 4 && std::string(schedule) == "zbv") continue;
        PipelineParallel pipe = pipeline(*net, batch_inputs(0, 1), with(schedule, 4));
        const Trained mine = train_in_pipeline(pipe, *net, 3);
        EXPECT_EQ(differs(mine, reference), "") << schedule;
        EXPECT_FALSE(mine.gradients.empty()) << schedule;
        net->eval();
        EXPECT_TRUE(at::equal(pipe.forward_batch(batch_inputs(9), true), outputs)) << schedule;
      }
    });
  }
}

// A tensor that is not row-major is sent in the order of its dimensions, so sums over rows are rounded in a different
// order.
TEST(ObservedParts, TransposedActivations) {
  auto whole = residual(false, -1, true);
  const Trained reference = train_alone(*whole, [&](const at::Tensor& x) { return whole->forward(x); }, 4, 3);
  run_ranks(2, [&](comm::World&) {
    auto net = residual(false, -1, true);
    PipelineParallel pipe = pipeline(*net, batch_inputs(0, 1), with("zbv", 4));
    EXPECT_EQ(differs(train_in_pipeline(pipe, *net, 3), reference, 1e-12), "");
  });
}

TEST(ObservedParts, LayersAreTheRegisteredBlocks) {
  auto whole = residual();
  const Trained reference = train_alone(*whole, [&](const at::Tensor& x) { return whole->forward(x); }, 3, 2, 7);
  run_ranks(2, [&](comm::World& world) {
    auto net = residual();
    const at::Tensor foreign = world.rank() == 0 ? net->head->weight : net->enter->weight;
    at::manual_seed(1);
    const at::Tensor next = at::rand({1});
    at::manual_seed(1);
    PipelineParallelOptions options = with("1f1b", 3);
    options.variable_sizes = true;  // 3, 2 and 2 rows: sizes that were not observed
    options.cut = PipelineCut::before({"blocks.2"});
    PipelineParallel pipe = pipeline(*net, batch_inputs(0, 1), options);
    EXPECT_TRUE(at::equal(at::rand({1}), next));
    EXPECT_TRUE(net->is_training());
    EXPECT_EQ(pipe.describe(), "1f1b, 3 micro-batches; rank 0: enter-blocks.1; rank 1: blocks.2-head");
    EXPECT_EQ(pipe.stages()[1].layers, (std::vector<std::string>{"blocks.2", "blocks.3", "statistics", "head"}));
    EXPECT_EQ(net->parameters().size(), world.rank() == 0 ? 14u : 16u);
    EXPECT_NE(error_of([&] { (void)foreign.sum(); }).find("of a pipeline is in stage"), std::string::npos);
    EXPECT_EQ(differs(train_in_pipeline(pipe, *net, 2, 7), reference), "");
  });
}

// The example's transformer: torch::nn attention, a mask made from a parameter's options, embeddings of ids.
TEST(ObservedParts, ATransformerThatKnowsNothingOfIt) {
  const auto ids_of = [](int step) {
    return at::randint(64, {8, 9}, at::detail::createCPUGenerator(static_cast<std::uint64_t>(step)),
                       at::TensorOptions(at::kLong));
  };
  const auto loss = [](const at::Tensor& logits, const at::Tensor& ids) {
    return at::cross_entropy_loss(logits.reshape({-1, logits.size(-1)}), ids.reshape({-1}));
  };
  at::manual_seed(6);
  MyTransformer whole(MyConfig{});
  Trained reference;
  torch::optim::SGD optimizer(whole->parameters(), 0.1);
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    double sum = 0;
    for (const at::Tensor& ids : ids_of(step).tensor_split(4)) {
      const at::Tensor part = loss(whole->forward(ids.narrow(1, 0, 8)), ids.narrow(1, 1, 8)) * 0.25;
      part.backward();
      sum += part.item<double>();
    }
    reference.losses.push_back(sum);
    reference.take_gradients(*whole);
    optimizer.step();
  }
  reference.take_weights(*whole);
  for (const bool later : {false, true})
    run_ranks(2, [&](comm::World& world) {
      at::manual_seed(6);
      const auto net =
          later ? deferred<MyTransformerImpl>(MyConfig{}) : std::make_shared<MyTransformerImpl>(MyConfig{});
      PipelineParallelOptions options = with("zbv", 4);
      options.loss = loss;
      PipelineParallel pipe = pipeline(*net, at::zeros({1, 4}, at::kLong), options);
      const std::string first = pipe.stages()[0].layers.front();  // C++ does not specify which is looked up first
      EXPECT_TRUE(first == "token" || first == "place") << first;
      EXPECT_EQ(pipe.stages()[3].layers.back(), "head");
      Trained mine;
      torch::optim::SGD own(net->parameters(), 0.1);
      for (int step = 0; step < 3; ++step) {
        own.zero_grad();
        mine.losses.push_back(pipe.train_batch(ids_of(step).narrow(1, 0, 8), ids_of(step).narrow(1, 1, 8)));
        mine.gradients.clear();
        mine.take_gradients(*net);
        own.step();
      }
      mine.take_weights(*net);
      EXPECT_EQ(differs(mine, reference, 2e-6), "") << later;  // activations are [T, B, C] views
      EXPECT_EQ(world.size(), 2);
    });
}

struct ProductImpl : torch::nn::Module {
  explicit ProductImpl(const at::Tensor& table) { weight = register_parameter("weight", table); }
  at::Tensor weight;
};
TORCH_MODULE(Product);
struct TiedImpl : torch::nn::Module {
  TiedImpl() : table(at::randn({width, width}, at::kDouble) * 0.3), middle(width, width) {
    middle->to(at::kDouble);
    first = register_module("first", Product(table));
    register_module("middle", middle);
    last = register_module("last", Product(first->weight));
  }
  at::Tensor forward(const at::Tensor& x) {
    return at::matmul(middle(at::matmul(x, first->weight)).sin(), last->weight.t());
  }
  at::Tensor table;
  torch::nn::Linear middle;
  Product first{nullptr}, last{nullptr};
};
TORCH_MODULE(Tied);

TEST(ObservedParts, TiedParametersAreAddedUp) {
  at::manual_seed(3);
  Tied whole;
  const Trained reference = train_alone(*whole, [&](const at::Tensor& x) { return whole->forward(x); }, 4, 3);
  for (const int ranks : {2, 3})
    run_ranks(ranks, [&](comm::World& world) {
      at::manual_seed(3);
      Tied net;
      PipelineParallel pipe = pipeline(*net, batch_inputs(0, 1), with("1f1b", 4));
      EXPECT_EQ(pipe.stages()[static_cast<std::size_t>(ranks) - 1].layers.back(), "last");
      EXPECT_EQ(pipe.held_by_earlier_stage().size(), world.rank() == ranks - 1 ? 1u : 0u);
      EXPECT_EQ(differs(train_in_pipeline(pipe, *net, 3), reference, 1e-12), "");
    });
}

TEST(ObservedParts, StagesMayBeSharded) {
  auto whole = residual();
  whole->eval();  // batch statistics of halves differ from those of the whole
  const Trained reference = train_alone(*whole, [&](const at::Tensor& x) { return whole->forward(x); }, 4, 2);
  run_ranks(4, [&](comm::World& world) {
    const comm::MeshGroups groups(world, layout::parse_mesh("pp=2,dp=2"));
    const comm::Group pp = groups.of(layout::Axis::pp), dp = groups.of(layout::Axis::dp_shard);
    auto net = residual();
    net->eval();
    PipelineParallelOptions options = with("1f1b", 2);
    options.group = pp;
    PipelineParallel pipe = pipeline(*net, batch_inputs(0, 1), options);
    Sharded engine(*net, {.strategy = "full_shard", .group = dp, .wrap = by_class({"Step"}), .stages = pp});
    pipe.attach(engine);
    torch::optim::AdamW optimizer(engine.parameters(), torch::optim::AdamWOptions(0.02));
    for (int step = 0; step < 2; ++step) {
      engine.zero_grad();
      const auto part = static_cast<std::size_t>(dp.rank());
      at::Tensor loss = at::full(
          {1}, pipe.train_batch(batch_inputs(step).tensor_split(2)[part], batch_targets(step).tensor_split(2)[part]),
          at::kDouble);
      dp.all_reduce(loss, comm::Reduction::mean).wait();
      EXPECT_NEAR(loss.item<double>(), reference.losses[static_cast<std::size_t>(step)], 1e-12);
      optimizer.step();
    }
    engine.visit_parameters([&](const std::string& name, const at::Tensor& value) {
      EXPECT_LE((value - reference.weights.at(name)).abs().max().item<double>(), 1e-11) << name;
    });
  });
}

// A skip connection across blocks makes them a single layer.
TEST(ObservedErrors, MoreThanOneTensorBetweenBlocks) {
  auto whole = residual(false, 1);
  const Trained reference = train_alone(*whole, [&](const at::Tensor& x) { return whole->forward(x); }, 4, 2);
  run_ranks(2, [&](comm::World&) {
    auto net = residual(false, 1);
    PipelineParallel pipe = pipeline(*net, batch_inputs(0, 1), with("1f1b", 4));
    EXPECT_EQ(pipe.stages()[0].layers.size() + pipe.stages()[1].layers.size(), 5u);
    EXPECT_EQ(differs(train_in_pipeline(pipe, *net, 2), reference), "");
    auto again = residual(false, 1);
    PipelineParallelOptions options = with("1f1b", 4);
    options.cut = PipelineCut::before({"blocks.2"});
    const std::string said = error_of([&] { (void)pipeline(*again, batch_inputs(0, 1), options); });
    EXPECT_NE(said.find("names 'blocks.2', but no layer has that name"), std::string::npos) << said;
    EXPECT_NE(
        said.find("2 tensors pass from 'blocks.1' and earlier to 'blocks.2' and later (computed by aten::add.Tensor, "
                  "aten::add.Tensor)"),
        std::string::npos)
        << said;
  });
}

struct OddImpl : torch::nn::Module {
  explicit OddImpl(std::string the_kind) : a(width, width), b(width, width), kind(std::move(the_kind)) {
    register_module("a", a);
    register_module("b", b);
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = a(x);
    if (kind == "item" && y.sum().item<double>() > 1) y = y * 2;
    if (kind == "mask") y = y.masked_select(y > 0).reshape({-1, 1}).expand({-1, width});
    if (kind == "again") return a(b(y).tanh());
    if (kind == "changes" && calls++ > 1) y = y.sigmoid();
    if (kind == "raw") y = y + y.detach().const_data_ptr<double>()[0];
    return b(y.tanh());
  }
  torch::nn::Linear a, b;
  std::string kind;
  int calls = 0;
};
TORCH_MODULE(Odd);

TEST(ObservedErrors, ForwardsThatCannotBeCut) {
  RankOptions run;
  run.end_after_failure = false;
  const auto said = [&](const char* kind) {
    return run_ranks_outcomes(
        2,
        [&](comm::World&) {
          Odd net(kind);
          PipelineParallel pipe = pipeline(*net, batch_inputs(0, 1), with("1f1b", 2));
          pipe.train_batch(batch_inputs(0), batch_targets(0));
        },
        run);
  };
  const std::string item = said("item")[0].error;
  EXPECT_NE(item.find("forward calls aten::item on a tensor that depends on parameters"), std::string::npos) << item;
  const std::string mask = said("mask")[0].error;
  EXPECT_NE(
      mask.find(
          "aten::masked_select on a tensor that depends on parameters; this operator returns a number of elements "
          "that depends on values"),
      std::string::npos)
      << mask;
  const std::string again = said("again")[0].error;
  EXPECT_NE(again.find("would have no layers: 1 are cut into 2 stages"), std::string::npos) << again;
  EXPECT_NE(again.find("'a' is used again after 'b' has begun"), std::string::npos) << again;
  const std::string changes = said("changes")[0].error;
  EXPECT_NE(changes.find("of forward is aten::sigmoid"), std::string::npos) << changes;
  EXPECT_NE(changes.find(", but was aten::tanh when it was recorded"), std::string::npos) << changes;
  const std::string raw = said("raw")[1].error;
  EXPECT_NE(raw.find("forward reads values of a tensor that another stage computes"), std::string::npos) << raw;
  EXPECT_EQ(said("nothing odd")[1].error, "");
}

}  // namespace
